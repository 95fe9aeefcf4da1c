package lambdahttp

import "fmt"

// KeySyntax reads the key from the value of a header line. Two values are one
// key exactly when it returns the same bytes for them. The error's text is
// shown to the client, so it must not quote the value.
type KeySyntax func(value string) (key string, err error)

// QuotedKey reads a string in double quotes, "8e03978e-40d5-43e8-bc93-6894a57f9324":
// an sf-string of RFC 9651, section 3.3.3 (the same as in RFC 8941), as the
// draft demands. Parameters behind it are allowed and ignored.
func QuotedKey(value string) (string, error) {
	return parseItem(value, (*sf).string)
}

// QuotedOrBareKey reads what [QuotedKey] reads, and a key without quotes that
// is made of letters, digits and !#$%&'*+-.^_`|~:/ only. Both spellings of a
// key are one key.
func QuotedOrBareKey(value string) (string, error) {
	return parseItem(value, (*sf).stringOrBare)
}

// readKey returns the request's key, and whether there is one. The error's
// text is for the client.
func (p *Profile) readKey(r *Request) (key string, found bool, err error) {
	values := r.Header(p.Header)
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
	default: // the draft, section 2.1: clients must not send more than one
		return "", true, errTrailing
	}
	if key, err = p.Syntax(values[0]); err != nil {
		return "", true, err
	}
	if len(key) < p.MinKeyLength || len(key) > p.MaxKeyLength {
		return "", true, fmt.Errorf("a key has %d to %d characters", p.MinKeyLength, p.MaxKeyLength)
	}
	return key, true, nil
}

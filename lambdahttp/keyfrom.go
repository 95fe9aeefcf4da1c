package lambdahttp

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/once-lambda/once/internal/canonical"
)

// KeySource says where a request carries its key. The zero value is the header
// that the profile names; [BodyField] is the other one.
type KeySource struct{ member string }

// BodyField is the [KeySource] of APIs whose requests carry the key in a member
// of their JSON body, as "idempotency_key" or "requestId". The member's string
// is the key as it stands; a member that is null counts as none. The profile's
// bounds of length hold, and so does the Check of its syntax.
//
// The body has to be one JSON object without duplicate names, whatever its
// Content-Type says: in any other body nobody can tell whether there is a key,
// and the request is refused. An empty body has none.
func BodyField(name string) KeySource {
	if name == "" {
		panic(`lambdahttp: BodyField wants the name of a member, for example "idempotency_key"`)
	}
	return KeySource{member: name}
}

// answers changes the texts that speak of a header.
func (k KeySource) answers(a *Answers) {
	if k.member == "" {
		return
	}
	a[MissingKey].Detail = fmt.Sprintf("This operation requires the member %q in the body. Send a new random key, for example a UUID.", k.member)
	a[InvalidKey].Detail = fmt.Sprintf("The member %q of the body cannot be used as a key.", k.member)
}

// bodyKeySyntax and bodyKeyPattern are what Profile.Syntax says of a header.
const (
	bodyKeySyntax  = "a string of printable ASCII characters"
	bodyKeyPattern = `^[ -~]{min,max}$`
)

var (
	errNoObject = errors.New("the body is not one JSON object with distinct names")
	errNotText  = errors.New("the member is not a string")
)

// bodyMember returns the string that a member of the JSON body holds, and
// whether there is one.
func (r *Request) bodyMember(name string) (value string, found bool, err error) {
	body, err := r.Body()
	switch {
	case isUnread(err):
		return "", true, err
	case err != nil:
		return "", true, errNoObject
	case len(body) == 0:
		return "", false, nil
	}
	doc, err := canonical.JSON(body)
	if err != nil {
		return "", true, errNoObject
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil || members == nil {
		return "", true, errNoObject
	}
	raw, found := members[name]
	if !found || string(raw) == "null" {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", true, errNotText
	}
	return value, true, nil
}

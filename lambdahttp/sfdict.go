package lambdahttp

// sfMember is one member of a Dictionary of Byte Sequences.
type sfMember struct {
	key   string
	value []byte
}

// byteDictionary reads the whole value as a Dictionary (RFC 9651, section
// 4.2.2) whose members are Byte Sequences, such as Content-Digest (RFC 9530,
// section 2). It returns all members of one name, although the RFC takes the
// last: every digest must match.
func (p *sf) byteDictionary() (members []sfMember, ok bool) {
	space := func(c byte) bool { return c == ' ' }
	white := func(c byte) bool { return c == ' ' || c == '\t' }
	p.while(space)
	for p.rest != "" {
		key := p.key()
		if key == "" || !p.skip('=') {
			return nil, false
		}
		value, ok := p.byteSequence()
		if !ok || !p.parameters() {
			return nil, false
		}
		members = append(members, sfMember{key, value})
		p.while(white)
		if p.rest == "" {
			return members, true
		}
		if !p.skip(',') {
			return nil, false
		}
		if p.while(white); p.rest == "" { // trailing comma
			return nil, false
		}
	}
	return members, true
}

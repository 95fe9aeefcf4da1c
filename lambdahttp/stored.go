package lambdahttp

// Encoding is what the records of this package say of the responses in them.
const Encoding = "http1"

// DecodeStored reads a response of that encoding, for tools that show records:
// see [idempotent.Guard.Stored]. One that was withheld (see [NoStore]) has its
// status alone.
func DecodeStored(data []byte) (Response, error) {
	var s stored
	err := codec{}.Decode(data, &s)
	return s.Response, err
}

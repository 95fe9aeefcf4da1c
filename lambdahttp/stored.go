package lambdahttp

// Encoding is what the records of this package say of the responses in them.
const Encoding = "http1"

// DecodeStored reads a response of that encoding, for tools that show records:
// see [idempotent.Guard.Stored].
func DecodeStored(data []byte) (Response, error) {
	var r Response
	err := codec{}.Decode(data, &r)
	return r, err
}

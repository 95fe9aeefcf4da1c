package lambdahttp

// Encoding is the encoding name in records that contain a response of this
// package.
const Encoding = "http1"

// DecodeStored decodes a response of that encoding, for tools that show
// records: see [idempotent.Guard.Stored]. A response that was withheld (see
// [NoStore]) has only its status.
func DecodeStored(data []byte) (Response, error) {
	var s stored
	err := codec{}.Decode(data, &s)
	return s.Response, err
}

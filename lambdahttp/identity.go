package lambdahttp

// identity identifies the caller as far as the event does; a field is empty if
// the event does not contain it. The gateway has verified all fields, so the
// caller cannot choose them.
type identity struct {
	principal       string // ARN of the IAM principal that signed the request
	apiKeyID        string // id, never the value, of the API key
	cognitoIdentity string // id of the Amazon Cognito identity
}

package lambdahttp

// identity is who the caller is, as far as the event tells it: each field is
// empty where the event does not carry it. The gateway has verified all of
// them; nothing in here is the caller's choice.
type identity struct {
	principal       string // ARN of the IAM principal that signed the request
	apiKeyID        string // id, never the value, of the API key
	cognitoIdentity string // id of the Amazon Cognito identity
}

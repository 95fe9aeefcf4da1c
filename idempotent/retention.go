package idempotent

import "time"

// RetentionOf composes Options.Retention from what it has to outlast: how long
// a client or an event source may retry, how long it takes you to recover from
// an outage, and how long people want to look at the outcome afterwards.
func RetentionOf(clientRetries, recovery, audit time.Duration) time.Duration {
	return clientRetries + recovery + audit
}

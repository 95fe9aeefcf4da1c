// SPDX-License-Identifier: Apache-2.0

package logs

import "os"

// Kept returns the level of a log line that Lambda must not drop: INFO, or the
// level of the function's filter if that is above INFO. It reads the variables
// AWS_LAMBDA_LOG_FORMAT and AWS_LAMBDA_LOG_LEVEL, which Lambda sets; only lines of
// the format JSON are filtered. Lambda reads a line's level only if the line also has
// a time in RFC 3339 (Lambda developer guide, "Log-level filtering"): without one it
// counts as INFO.
func Kept() string {
	level := os.Getenv("AWS_LAMBDA_LOG_LEVEL")
	if os.Getenv("AWS_LAMBDA_LOG_FORMAT") == "JSON" && (level == "WARN" || level == "ERROR" || level == "FATAL") {
		return level
	}
	return "INFO"
}

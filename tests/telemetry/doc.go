// Package telemetry checks that CloudWatch can read what is printed for it.
package telemetry

// Package telemetry holds what is printed for CloudWatch to what CloudWatch
// reads.
package telemetry

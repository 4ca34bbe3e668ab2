// Package telemetry shows what the daemon does. [Metrics] is an observer of every session and counts for Prometheus.
// [Tracing] exports OpenTelemetry traces. Metrics and traces never hold a question, an answer or a key. The package
// decides nothing about a run.
package telemetry

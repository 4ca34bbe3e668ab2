// Package telemetry makes visible what the daemon does: Prometheus metrics ([Metrics], an observer of every session)
// and OpenTelemetry traces ([Tracing]). Neither ever holds a question, an answer or a key. The package decides
// nothing about a run.
package telemetry

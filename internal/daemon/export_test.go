package daemon

// CloseIdleConnections closes the connections to providers that are kept for a next call.
func (d *Daemon) CloseIdleConnections() { d.engine.setup.Load().client.Close() }

// The time limits that tests reach.
const (
	HeaderTimeout = headerTimeout
	BodyTimeout   = bodyTimeout
	CloseGrace    = closeGrace
)

// ShareRecords is what a daemon on a cluster does with records.
var ShareRecords = shareRecords

// Collect reads a record store for a report.
var Collect = collect

// LedgerLines returns the lines of a ledger.
var LedgerLines = ledgerLines

// MeasureSpend adds what accounts hold to metrics.
var MeasureSpend = measureSpend

// Package spend keeps what calls to models cost, and enforces cost limits.
//
// All money is in whole picodollars, see [USD]. Sums are exact. A sum that would overflow is the largest amount,
// which is above every limit.
//
// A [Tariff] says what a model's tokens cost. The bound of an attempt is the most that the attempt can cost. An
// [Account] of a [Book] reserves the bound before the attempt is sent ([Account.Reserve]). Afterwards it replaces the
// reserved amount by the cost ([Hold.Charge]). Both methods hold the same lock. The cost of an attempt is:
//
//   - the figure that the provider reports, or else the tariff times the tokens that the provider reports;
//   - nothing, if the attempt did not reach the provider, or if the provider refused it (HTTP 4xx);
//   - the bound of the attempt, if there are no figures. That cost is uncertain, because the provider may have charged
//     less.
//
// With [Options.Hard], certain, uncertain and reserved amounts together stay within every limit at every instant. Only
// a bill above the bound of its attempt breaks that. Such a bill is charged in full, and the later bounds of its model
// grow by the same ratio. Without Options.Hard, no call begins once the session has reached its limit. The certain
// cost, the uncertain cost and the expected cost of calls in flight all count against this limit.
//
// The [Ledger] gets a line when a session begins, and a line with the session's calls when the session ends. A [Book]
// replays these lines when a daemon starts. If the daemon of a session was killed, the session has no last line in the
// ledger. Such a session counts with its whole limit, as uncertain. Each line has a checksum, and the [End] says how
// many lines the ledger has at least. [Check] and [ReadReport] say what cannot be read or is missing.
//
// Callers make the calls, find the prices and store the lines.
package spend

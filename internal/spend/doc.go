// Package spend keeps what calls to models cost, and holds limits of cost.
//
// All money is in whole picodollars, see [USD]. Sums of it are exact, and a sum that would
// overflow is the largest amount, which fits no limit.
//
// A [Tariff] says what a model's tokens cost. [Accounts] reserve what an attempt can cost at
// most before it is sent ([Accounts.Reserve]), and replace that by what it did cost afterwards
// ([Reservation.Finish]), both under one lock:
//
//   - the provider's own figure, where it gives one, else the tariff times the tokens that it
//     reports;
//   - nothing for an attempt that did not reach the provider, or that it refused (HTTP 4xx);
//   - its bound for any other attempt without figures. That cost is uncertain: the provider may
//     have charged less.
//
// With [Options.Hard], certain, uncertain and reserved amounts together stay within every limit
// at every instant. One thing breaks that: a bill above the bound of its attempt. It is charged
// in full, and the later bounds of its model grow by the same ratio. Otherwise no call begins
// once the certain and uncertain cost of its session, with what calls in flight are expected to
// cost, has reached the limit.
//
// The [Ledger] gets a line when a session begins and one with its calls when it ends. [Accounts]
// replay those lines when a daemon starts. A session that has no end there counts with its whole
// limit, as uncertain: its daemon was killed. Each line has a checksum, and the [End] of a ledger says how far it reaches at
// least: [Check] and [ReadReport] say what cannot be read or is missing.
//
// The package leaves to others how calls are made, where prices come from, and how lines are
// stored.
package spend

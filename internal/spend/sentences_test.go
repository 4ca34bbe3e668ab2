package spend

import (
	"testing"

	"github.com/councild/councild/internal/council"
)

func TestDollars(t *testing.T) {
	for text, want := range map[string]string{
		"0": "$0.00", "0.000000000001": "$0.000000000001", "0.0000128": "$0.000013", "0.0031": "$0.0031", "0.0319": "$0.032",
		"0.05": "$0.05", "0.0995": "$0.10", "0.0994": "$0.099", "0.1": "$0.10", "0.3149": "$0.31", "0.315": "$0.32", "0.996": "$1.00",
		"4.9713": "$4.97", "999.999": "$1,000.00", "1234567.5": "$1,234,567.50",
	} {
		a, err := ParseUSD(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Dollars(); got != want {
			t.Errorf("%s is written %s, want %s", text, got, want)
		}
		if least := a.atLeast(); least < a || least.Dollars() != written(least) {
			t.Errorf("%s is rounded up to %v", text, least)
		}
	}
	if got := largest.Dollars(); got != "$9,223,372.03" {
		t.Errorf("the largest amount is written %s", got)
	}
}

func amount(dollars float64) *USD { return new(FromFloat(dollars)) }

func TestEstimateSentences(t *testing.T) {
	session := func(limit float64, hard bool) []Limit {
		l := Limit{Scope: ScopeSession, Limit: FromFloat(limit), Left: FromFloat(limit), Hard: hard}
		l.say()
		return []Limit{l}
	}
	day := Limit{Scope: ScopeDay, Limit: 5 * Dollar, Left: FromFloat(4.97)}
	day.say()
	token := Limit{Scope: ScopeToken, Limit: Dollar, Left: FromFloat(0.9)}
	token.say()
	for name, c := range map[string]struct {
		e                           Estimate
		sentence, usual, rest, room string
	}{
		"usual": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Expected: amount(0.32), Upper: amount(0.6)},
			sentence: "9 calls, about $0.32, at most $0.60.", usual: "9 calls, about $0.32.",
		},
		"no earlier calls": {
			e:        Estimate{Calls: 1, LeastCalls: 1, Upper: amount(0.6)},
			sentence: "1 call, at most $0.60.", usual: "1 call.",
		},
		"expected above the upper limit": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Expected: amount(0.7), Upper: amount(0.6)},
			sentence: "9 calls, about $0.60, at most $0.60.", usual: "9 calls, about $0.70.",
		},
		"no price": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Unpriced: []string{"x-ai/grok-4"}},
			sentence: "9 calls. No estimate: there is no price for x-ai/grok-4.",
			usual:    "9 calls. No estimate: there is no price for x-ai/grok-4.",
		},
		"no prices, but earlier costs": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Expected: amount(0.32), Unpriced: []string{"a", "b", "c", "d"}},
			sentence: "9 calls, about $0.32. No upper limit: there is no price for a, b, c and 1 other model.", usual: "9 calls, about $0.32.",
		},
		"no length": {
			e:        Estimate{Calls: 9, LeastCalls: 9},
			sentence: "9 calls. No estimate: nothing limits the length of the answers.", usual: "9 calls.",
		},
		"few first": {
			e:        Estimate{Calls: 9, LeastCalls: 2, Expected: amount(0.32), Upper: amount(0.6), LeastUSD: amount(0.1), rest: amount(0.25)},
			sentence: "2 to 9 calls, about $0.32, at most $0.60, or $0.10 if the first answers are enough.", usual: "2 to 9 calls, about $0.32.",
			rest: "7 more calls, about $0.25, at most $0.50.",
		},
		"soft limit": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Expected: amount(0.32), Upper: amount(2.05), Limits: append(session(0.5, false), day, token)},
			sentence: "9 calls, about $0.32, at most $2.05.", usual: "9 calls, about $0.32.",
			room: "Within budget. The session stops asking once $0.50 is spent. Calls that are under way may pass it. " +
				"$4.97 of today's $5.00 left. $0.90 of your $1.00 for today left.",
		},
		"soft limit that is not reached": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Upper: amount(0.4), Limits: session(0.5, false)},
			sentence: "9 calls, at most $0.40.", usual: "9 calls.", room: "Within budget.",
		},
		"hard limit": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Upper: amount(2.05), Limits: session(0.5, true)},
			sentence: "9 calls, at most $0.50.", usual: "9 calls.", room: "Within budget.",
		},
		"refused": {
			e:        Estimate{Calls: 9, LeastCalls: 9, Upper: amount(2.05), Refusal: new("no money is left, in detail"), why: "no money is left", Limits: []Limit{day}},
			sentence: "9 calls, at most $2.05.", usual: "9 calls.", room: "It would be refused: no money is left.",
		},
	} {
		c.e.say()
		for what, is := range map[string][2]string{
			"sentence": {c.e.Sentence, c.sentence}, "usual sentence": {c.e.UsualSentence, c.usual},
			"rest sentence": {c.e.RestSentence, c.rest}, "budget sentence": {c.e.BudgetSentence, c.room},
		} {
			if is[0] != is[1] {
				t.Errorf("%s: the %s is %q, want %q", name, what, is[0], is[1])
			}
		}
	}
	e := Estimate{Calls: 9, LeastCalls: 9, Upper: amount(0.6)}
	e.Expect(nil)
	if e.Expect(amount(0.32)); e.Sentence != "9 calls, about $0.32, at most $0.60." {
		t.Errorf("with a usual cost the estimate is %q", e.Sentence)
	}
	if e.Expect(amount(0.5)); *e.Expected != *amount(0.32) {
		t.Errorf("the expected cost of the calls is replaced by %v", e.Expected)
	}
}

// A refused estimate says why in words that name no field and no setting.
func TestWhyRefused(t *testing.T) {
	tariff := func(string) (Tariff, bool) { return Flat(1, 1), true }
	for name, c := range map[string]struct {
		o    Options
		s    Opening
		want string
	}{
		"too little": {
			o: Options{Hard: true}, s: Opening{Limit: amount(0.5), First: amount(0.3)},
			want: "the first calls can cost $0.30, but may use only 50 % of the limit of $0.50. " +
				"Set a limit of $0.61 or more, or choose fewer members",
		},
		"no room under a hard limit": {
			o: Options{Hard: true, Day: amount(0.4)}, s: Opening{Limit: amount(0.5)},
			want: "too little is left of today's budget. $0.40 of today's $0.40 left. " +
				"Wait until 00:00 UTC, or set a lower limit for this question",
		},
		"no room": {
			o:    Options{Day: new(USD)},
			want: "too little is left of today's budget. $0.00 of today's $0.00 left. Wait until 00:00 UTC",
		},
		"no price": {
			o:    Options{Hard: true, Tariff: func(string) (Tariff, bool) { return Tariff{}, false }},
			s:    Opening{Limit: amount(0.5), Models: []string{"a"}},
			want: "the cost limit is hard, and there is no price for a",
		},
		"no limit": {o: Options{Hard: true, Day: amount(1)}, want: "the session has no cost limit"},
	} {
		if c.o.Tariff == nil {
			c.o.Tariff = tariff
		}
		c.s.Shares = map[council.Stage]int64{council.Stage1: 50}
		b := NewBook(c.o)
		s := &Account{Opening: c.s, day: b.today()}
		e := Estimate{Limits: b.Limits(""), Unpriced: b.unpriced(c.s.Models)}
		b.mu.Lock()
		failure := b.refusalLocked(b.limited(s))
		b.mu.Unlock()
		if failure == nil {
			t.Fatalf("%s: it is not refused", name)
		}
		if got := b.why(e, s, failure); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestLimitRule(t *testing.T) {
	for hard, want := range map[bool]string{
		false: "The session stops asking once this is spent. Calls that are under way may pass it.",
		true:  "The session never costs more than this.",
	} {
		if got := LimitRule(hard, "this"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSpentSentence(t *testing.T) {
	for want, r := range map[string]Costs{
		"Nothing spent in the last 30 days.": {Days: 30},
		"Nothing spent today (UTC).":         {Days: 1},
		"Nothing spent yet.":                 {},
		"$1.23 spent in the last 7 days.":    {Days: 7, Total: *amount(1.234)},
		"$1.23 spent today (UTC).":           {Days: 1, Total: *amount(1.234)},
		"$1.23 spent in all. Up to $0.20 of it is uncertain. The cost of 1 call is unknown, and not in the sum.": {
			Total: *amount(1.234), Uncertain: *amount(0.2), Unknown: 1,
		},
		"Nothing spent in the last 30 days. The cost of 2 calls is unknown, and not in the sum.": {Days: 30, Unknown: 2},
	} {
		if r.say(); r.Sentence != want {
			t.Errorf("got %q, want %q", r.Sentence, want)
		}
	}
}

func TestCostOf(t *testing.T) {
	session := func(usd *float64, partial bool, warnings ...council.Warning) *council.Session {
		s := &council.Session{}
		s.Metadata.Usage.CostUSD = usd
		s.Metadata.Usage.Total.Partial = partial
		s.Metadata.Warnings = warnings
		return s
	}
	today := []Limit{{Scope: ScopeDay, Sentence: "$4.97 of today's $5.00 left."}}
	uncertain := council.Warning{Code: council.WarnCostUncertain, Message: "$0.10 of the cost is uncertain, because it is"}
	for _, c := range []struct {
		want string
		got  SessionCost
	}{
		{"It cost $0.31.", CostOf(session(new(0.3149), false), nil, nil)},
		{"It cost at least $0.31.", CostOf(session(new(0.3149), true), nil, nil)},
		{"The cost is unknown. $4.97 of today's $5.00 left.", CostOf(session(nil, true), new(1.0), today)},
		{
			"It cost $0.31. $0.69 of the session's $1.00 left. $4.97 of today's $5.00 left.",
			CostOf(session(new(0.31), false), new(1.0), today),
		},
		{"It cost $0.55. $0.05 over the session's limit of $0.50.", CostOf(session(new(0.55), false), new(0.5), nil)},
		{"It cost $0.31. $0.10 of the cost is uncertain, because it is.", CostOf(session(new(0.31), false, uncertain), nil, nil)},
	} {
		if c.got.Sentence != c.want {
			t.Errorf("got %q, want %q", c.got.Sentence, c.want)
		}
	}
	if c := CostOf(session(new(0.31), false), new(1.0), today); c.Cost != "$0.31" || c.Left != "$0.69 of the session's $1.00 left. $4.97 of today's $5.00 left." {
		t.Errorf("got %+v", c)
	}
}

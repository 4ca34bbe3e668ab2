package spend_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
)

// bill is a ledger of two days: a session of token x on each, one of token y, and one without an end.
const bill = `{"type":"open","day":"2026-11-22","session":"1","token":"x","council":"a,b;a","limit_usd":null}
{"type":"close","day":"2026-11-22","session":"1","token":"x","council":"a,b;a","limit_usd":null,"calls":[
  {"stage":"stage1","model":"a","usd":0.000000000001,"source":"provider"},{"stage":"stage1","model":"b","usd":0.5,"source":"tariff"}]}
{"type":"open","day":"2026-11-23","session":"2","token":"x","council":"a,b;a","limit_usd":2}
{"type":"close","day":"2026-11-23","session":"2","token":"x","council":"a,b;a","limit_usd":2,"calls":[
  {"stage":"stage1","model":"a","usd":0.25,"source":"bound"},{"stage":"stage2","model":"a","usd":null,"source":"bound"}]}
{"type":"close","day":"2026-11-23","session":"3","token":"y","council":"c,d;c","limit_usd":2,"calls":[
  {"stage":"stage1","model":"a","usd":1,"source":"tariff"}]}
{"type":"open","day":"2026-11-23","session":"4","token":"y","council":"c,d;c","limit_usd":3}
this is no entry
`

func lines(text string) spend.Lines {
	text = strings.ReplaceAll(text, "\n  ", "")
	return func(yield func(spend.Line, error) bool) {
		for line := range strings.Lines(text) {
			if !yield(spend.ParseLine([]byte(strings.TrimSpace(line)))) {
				return
			}
		}
	}
}

func TestReport(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		query spend.Query
		total string // and uncertain, unknown
		rows  []string
	}{
		{"by day", spend.Query{}, "4.750000000001 3.25 1", []string{"2026-11-22 1 2 0.500000000001 0 0", "2026-11-23 3 3 4.25 3.25 1"}},
		{"of one day", spend.Query{Days: 1}, "4.25 3.25 1", []string{"2026-11-23 3 3 4.25 3.25 1"}},
		{"by token", spend.Query{By: spend.ByToken}, "4.750000000001 3.25 1", []string{"y 2 1 4 3 0", "x 2 4 0.750000000001 0.25 1"}},
		{"by council", spend.Query{By: spend.ByCouncil}, "4.750000000001 3.25 1", []string{"c,d;c 2 1 4 3 0", "a,b;a 2 4 0.750000000001 0.25 1"}},
		{
			"by model",
			spend.Query{By: spend.ByModel},
			"4.750000000001 3.25 1",
			[]string{" 1 0 3 3 0", "a 3 4 1.250000000001 0.25 1", "b 1 1 0.5 0 0"},
		},
		{
			"of one token",
			spend.Query{Token: new("x")},
			"0.750000000001 0.25 1",
			[]string{"2026-11-22 1 2 0.500000000001 0 0", "2026-11-23 1 2 0.25 0.25 1"},
		},
	} {
		r, err := spend.ReadReport(lines(bill), nil, nil, c.query, now)
		if err != nil {
			t.Fatal(err)
		}
		if got := words(r.Total, r.Uncertain, r.Unknown); got != c.total {
			t.Errorf("%s: %s, want %s", c.name, got, c.total)
		}
		var rows []string
		for _, row := range r.Rows {
			rows = append(rows, words(row.Key, row.Sessions, row.Calls, row.Total, row.Uncertain, row.Unknown))
		}
		if strings.Join(rows, "|") != strings.Join(c.rows, "|") {
			t.Errorf("%s: %q, want %q", c.name, rows, c.rows)
		}
	}
}

// A session that runs counts with its calls so far, and not whole.
func TestReportOfARunningSession(t *testing.T) {
	ledger := &memory{}
	a := spend.NewBook(hard(ledger))
	open(t, a, spend.Dollar, "a")
	r, _ := a.Reserve("s", one(council.Stage1, 7))
	r.Charge(t.Context(), spend.Billed{Tokens: &spend.Tokens{Input: 7}})
	report, err := spend.ReadReport(ledger.all, nil, a, spend.Query{}, time.Now())
	if err != nil || report.Total != 7*million || report.Uncertain != 0 || len(report.Rows) != 1 || report.Rows[0].Sessions != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err = spend.ReadReport(ledger.all, nil, nil, spend.Query{}, time.Now()); err != nil || report.Uncertain != spend.Dollar {
		t.Errorf("without its accounts: %+v, %v", report, err)
	}
}

func TestEstimate(t *testing.T) {
	a := spend.NewBook(hard(nil))
	plan := council.Plan{
		SessionID: "s", Conversation: []council.Message{{Role: "user", Content: "Why?"}},
		Limits: council.Limits{MaxCostUSD: new(2.0)},
	}
	seats := []council.Member{{ID: "a", Model: "a"}, {ID: "b", Model: "b"}}
	plan.Stages = council.Stages(council.ModeCouncil, seats, seats, seats[:1])
	limit := council.Sampling{MaxOutputTokens: new(100)}
	plan.Rules.Sampling, plan.Rules.ReviewSampling = limit, limit
	e := a.Estimate(plan)
	if e.Calls != 5 || e.Upper == nil || e.Expected != nil || !e.Fits || e.Refusal != nil || len(e.Limits) != 3 || len(e.Unpriced) != 0 {
		t.Errorf("%+v", e)
	}
	var byStage, byModel spend.USD
	for _, f := range e.ByStage {
		byStage = byStage.Plus(*f.Upper)
	}
	for _, f := range e.ByModel {
		byModel = byModel.Plus(*f.Upper)
	}
	if byStage != *e.Upper || byModel != *e.Upper {
		t.Errorf("by stage %v, by model %v of %v", byStage, byModel, *e.Upper)
	}
	withSchema := plan
	withSchema.Output = &council.Format{Name: "answer", Schema: []byte(`{"type":"object"}`)}
	if more := a.Estimate(withSchema); more.Calls != 6 || *more.Upper <= *e.Upper || more.ByStage["stage3"].Calls != 2 {
		t.Errorf("with a schema, whose reply may be repaired: %+v", more)
	}
	plan.MaxCostUSD = new(100.0)
	if e = a.Estimate(plan); e.Fits || e.Refusal == nil {
		t.Error("more than the day's limit fits")
	}
	seats[0].Model = "c"
	if e = a.Estimate(plan); e.Fits || e.Upper != nil || strings.Join(e.Unpriced, ",") != "c" || e.ByModel["b"].Upper == nil {
		t.Errorf("%+v", e)
	}
}

// A prompt that quotes a reply without a limit can be of any length.
func TestEstimateOfEndlessReplies(t *testing.T) {
	seat := func(id string, limit int) council.Member {
		return council.Member{ID: id, Model: id, Profile: &council.Profile{MaxOutputTokens: limit}}
	}
	for name, tt := range map[string]struct {
		member, reviewer int // limits of their replies; 0: none
		known            string
	}{
		"all have a limit":    {100, 100, "a b stage1 stage2 stage3"},
		"a member has none":   {0, 100, ""},
		"a reviewer has none": {100, 0, "stage1"},
	} {
		plan := council.Plan{
			SessionID: "s", Stages: council.Stages(council.ModeCouncil,
				[]council.Member{seat("a", tt.member)}, []council.Member{seat("b", tt.reviewer)}, []council.Member{seat("a", 100)},
			),
		}
		var known []string
		e := spend.NewBook(hard(nil)).Estimate(plan)
		for _, figures := range []map[string]spend.Figure{e.ByModel, e.ByStage} {
			for _, of := range slices.Sorted(maps.Keys(figures)) {
				if figures[of].Upper != nil {
					known = append(known, of)
				}
			}
		}
		if got := strings.Join(known, " "); got != tt.known {
			t.Errorf("%s: known are %q, want %q", name, got, tt.known)
		}
	}
}

// What is asked after a session costs, and is no session of its own.
func TestReportOfComparisons(t *testing.T) {
	const ledger = `{"type":"close","day":"2026-11-23","session":"1","token":"x","council":"a","calls":[
  {"stage":"stage1","model":"a","usd":1}]}
{"type":"open","day":"2026-11-23","session":"1-shadow","token":"x","council":"a"}
{"type":"close","day":"2026-11-23","session":"1-shadow","token":"x","council":"a","calls":[{"stage":"shadow","model":"a","usd":0.5}]}
`
	for _, by := range []spend.By{spend.ByDay, spend.ByModel} {
		r, err := spend.ReadReport(lines(ledger), nil, nil, spend.Query{By: by}, time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
		if err != nil || len(r.Rows) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if row := r.Rows[0]; row.Sessions != 1 || row.Calls != 2 || r.Total.String() != "1.5" {
			t.Errorf("by %s: %d sessions with %d calls, %v US dollars", by, row.Sessions, row.Calls, r.Total)
		}
	}
}

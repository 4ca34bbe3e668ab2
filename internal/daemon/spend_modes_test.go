package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// voters returns members that give these answers in the form of a number.
func voters(answers ...string) []simllm.Model {
	models := daemontest.Members()[:len(answers)]
	for i, answer := range answers {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			return "I have counted.\nANSWER: " + answer, task.Kind == simllm.Question
		}
	}
	return models
}

// leastLimit matches the limit in the refusal of a session whose limit is too low.
var leastLimit = regexp.MustCompile(`give ([0-9.]+) or more`)

// In each mode, the estimate says how many calls a session makes and the most that they cost. A hard limit that is too
// low for the first stage refuses the session before a call. No higher limit is passed, and each such session has an
// answer. The provider bills the most that each request can cost.
func TestHardLimitsInEachMode(t *testing.T) {
	testkit.Slow(t)
	const form = `,"answer_form":{"type":"number"}`
	for name, tt := range map[string]struct {
		mode    council.Mode // "" names none
		fields  string
		answers []string
		calls   int
		least   int  // the calls if the members that begin decide
		decide  bool // whether they decide
	}{
		"council":            {"", "", []string{"7", "8", "9"}, 7, 7, false},
		"ranked":             {"ranked", "", []string{"7", "8", "9"}, 6, 6, false},
		"synthesis":          {"synthesis", "", []string{"7", "8", "9"}, 4, 4, false},
		"vote":               {"vote", form, []string{"7", "8", "8"}, 3, 3, false},
		"single":             {"single", `,"models":["b"]`, []string{"7", "8", "9"}, 1, 1, false},
		"an ensemble":        {"synthesis", `,"models":["a","a","a"]`, []string{"7", "8", "9"}, 4, 4, false},
		"first":              {"", `,"first":1`, []string{"7", "8", "9"}, 7, 1, true},
		"first, the same":    {"", `,"first":2` + form, []string{"7", "7", "9"}, 7, 2, true},
		"first, different":   {"", `,"first":2` + form, []string{"7", "8", "9"}, 7, 2, false},
		"first, ranked":      {"ranked", `,"first":2` + form, []string{"7", "8", "9"}, 6, 2, false},
		"first without form": {"", `,"first":2`, []string{"7", "7", "9"}, 7, 7, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := daemontest.Bill(t, 0, voters(tt.answers...)...)
			d := daemontest.Start(t, hardSettings(b, map[string]string{"MAX_COST_USD": "1", "MAX_OUTPUT_TOKENS": "1000"}))
			// spent runs a session under a limit. It returns the most that it may have cost, and how many calls it made.
			spent := func(limit spend.USD) (status int, body []byte, sum spend.USD, calls int) {
				before, asked := b.Billed()
				status, body = d.Call(t, "POST", "/v1/council", limited(tt.mode, tt.fields, limit))
				after, now := b.Billed()
				return status, body, after - before, now - asked
			}
			e := estimateOf(t, d, limited(tt.mode, tt.fields, spend.Dollar))
			if e.Calls != tt.calls || e.LeastCalls != tt.least || !e.Fits || e.Upper == nil || e.LeastUSD == nil {
				t.Fatalf("%d calls, at least %d: %+v", e.Calls, e.LeastCalls, e)
			}
			for _, mode := range council.Modes() {
				request := limited(mode, tt.fields, spend.Dollar)
				figure, ok := e.ByMode[mode]
				status, data := d.Call(t, "POST", "/v1/council/estimate", request)
				if !ok {
					if status == http.StatusOK {
						t.Errorf("by_mode lacks %s: %s", mode, data)
					}
					continue
				}
				if of := estimateOf(t, d, request); of.Calls != figure.Calls || *of.Upper != *figure.Upper {
					t.Errorf("%s: by_mode has %d calls for %v, its estimate %d for %v", mode, figure.Calls, figure.Upper, of.Calls, of.Upper)
				}
			}
			status, data, sum, calls := spent(spend.Dollar)
			upper, want := *e.Upper, tt.calls
			if tt.decide {
				upper, want = *e.LeastUSD, tt.least
			}
			if status != http.StatusOK || calls != want || sum > upper || statusOf(t, data) != council.StatusComplete {
				t.Errorf("%d calls for %v, want %d for at most %v: %d %s", calls, sum, want, upper, status, data)
			}
			_, data, _, calls = spent(spend.Dollar / 1000)
			found := leastLimit.FindSubmatch(data)
			if found == nil || calls > 0 {
				t.Fatalf("%d calls: %s", calls, data)
			}
			least, err := spend.ParseUSD(string(found[1]))
			if err != nil {
				t.Fatal(err)
			}
			below := least - least/8 // It is rounded up by less than that.
			if e := estimateOf(t, d, limited(tt.mode, tt.fields, below)); e.Fits || e.Refusal == nil {
				t.Errorf("the estimate fits into %v", below)
			}
			if status, data, _, calls := spent(below); status != http.StatusUnprocessableEntity || calls > 0 {
				t.Errorf("limit %v, below the least: %d calls, %d %s", below, calls, status, data)
			}
			limits := []spend.USD{min(4**e.Upper, spend.Dollar)} // Each stage may use only a share of a limit.
			for i := range spend.USD(10) {
				limits = append(limits, least+i*least/8)
			}
			for i, limit := range limits {
				status, data, sum, calls := spent(limit)
				if status != http.StatusOK || sum > limit {
					t.Errorf("limit %v: %d calls for %v, %d %s", limit, calls, sum, status, data)
					continue
				}
				s := statusOf(t, data)
				switch short := strings.Contains(string(data), `"code":"budget"`); {
				case s == council.StatusComplete:
				case s != council.StatusDegraded || !short || i == 0:
					t.Errorf("limit %v: %s: %s", limit, s, data)
				}
				if !tt.decide {
					continue
				}
				// The session that convenes the council has the same limit for itself.
				before, asked := b.Billed()
				status, data = d.Call(t, "POST", "/v1/council/"+idOf(t, data)+"/convene", "")
				after, now := b.Billed()
				if status != http.StatusOK || after-before > limit || i == 0 && now-asked != tt.calls-tt.least {
					t.Errorf("limit %v: convened with %d calls for %v, %d %s", limit, now-asked, after-before, status, data)
				}
			}
		})
	}
}

// limited returns a request with a limit of its cost.
func limited(mode council.Mode, fields string, limit spend.USD) string {
	if mode != "" {
		fields += fmt.Sprintf(`,"mode":%q`, mode)
	}
	return fmt.Sprintf(`{"query":"How many?","max_cost_usd":%v%s}`, limit, fields)
}

// estimateOf returns the estimate of a request.
func estimateOf(t *testing.T, d *daemontest.Daemon, body string) (e spend.Estimate) {
	t.Helper()
	status, data := d.Call(t, "POST", "/v1/council/estimate", body)
	if err := json.Unmarshal(data, &e); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, data, err)
	}
	return e
}

// statusOf returns the status of a session that has an answer.
func statusOf(t *testing.T, data []byte) council.Status {
	t.Helper()
	var s council.Session
	if err := json.Unmarshal(data, &s); err != nil || s.Answer == "" {
		t.Fatalf("%s: %v", data, err)
	}
	return s.Status
}

// idOf returns the id of a session.
func idOf(t *testing.T, data []byte) string {
	t.Helper()
	var s council.Session
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var modeKills = flag.Int("modecrash", 6, "how often TestFaultF69ModesAfterKillNine kills a daemon")

// modeCase is a session in one mode. Its fields belong to a request, and its directions to the question. See scripted.
type modeCase struct {
	name       string
	fields     string
	directions string
	convened   bool // the council is convened after a session that ended before the kill
	judged     bool // the session judges answers that are given
}

// modeCases has a session for each mode, and for each way in which members that begin can decide one.
func modeCases() []modeCase {
	const vote = `,"mode":"vote","answer_form":{"type":"number"}`
	const two = `,"first":2,"answer_form":{"type":"number"}`
	return []modeCase{
		{name: "council"},
		{name: "ranked", fields: `,"mode":"ranked"`},
		{name: "synthesis", fields: `,"mode":"synthesis"`},
		{name: "vote", fields: vote, directions: "[a.answer=says7] [b.answer=says8] [c.answer=says8]"},
		{name: "tied vote", fields: vote, directions: "[a.answer=says7] [b.answer=says8] [c.answer=says9]"},
		{name: "single", fields: `,"mode":"single","models":["b"]`},
		{name: "first", fields: `,"first":1`},
		{name: "first, the same", fields: two, directions: "[a.answer=says7] [b.answer=says7]"},
		{name: "first, different", fields: two, directions: "[a.answer=says7] [b.answer=says8]"},
		{name: "first, ranked", fields: two + `,"mode":"ranked"`, directions: "[a.answer=says7] [b.answer=says8]"},
		{name: "convened", fields: `,"first":1`, convened: true},
		{name: "judged pair", fields: `,"answers":[{"id":"x","text":"It scatters.","author":"a"},{"id":"y","text":"The sea."}]`, judged: true},
		{name: "judged three", fields: `,"answers":[{"id":"x","text":"1"},{"id":"y","text":"2"},{"id":"z","text":"3"}]`, judged: true},
	}
}

// body returns the request for the n-th case.
func (c modeCase) body(n int, background bool) string {
	field := "query"
	if c.judged {
		field = "question"
	}
	return fmt.Sprintf(`{"%s":"What is it, %s? %s","seed":%d,"background":%v%s}`, field, mark(n), c.directions, n, background, c.fields)
}

// modeEnd is the part of a session's end that a kill must not change.
type modeEnd struct {
	Status     council.Status
	Mode       council.Mode
	Answer     string
	AnswerFrom council.AnswerFrom
	Stages     []council.Stage
	First      *council.FirstAsked
	Answers    []string
	Ranking    []string
	Records    int
}

// modeRun is a daemon that runs each case once, and that is killed and started again.
type modeRun struct {
	provider *scripted
	dir      string
	process  *process
	caller   daemontest.Caller
}

func newModeRun(t *testing.T) *modeRun {
	t.Helper()
	r := &modeRun{provider: newScripted(t), dir: t.TempDir()}
	r.provider.Delay = 15 * time.Millisecond
	r.start(t)
	return r
}

// start starts a daemon on the directory.
func (r *modeRun) start(t *testing.T) {
	t.Helper()
	r.process = start(t, []string{
		"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + r.provider.URL + "/v1", "LLM_COUNCIL_MODELS=a,b,c",
		"LLM_COUNCIL_DATA_DIR=" + r.dir, "LLM_COUNCIL_MAX_OUTPUT_TOKENS=300",
		"LLM_COUNCIL_COST_LIMITS=hard", "LLM_COUNCIL_MAX_COST_USD=1", "LLM_COUNCIL_MAX_COST_USD_PER_DAY=100",
		"LLM_COUNCIL_PRICES=a=" + scriptedPrice + ",b=" + scriptedPrice + ",c=" + scriptedPrice,
	}, "serve")
	url, _, _ := strings.Cut(line(t, r.process.stderr, `"msg":"listening","url":"`), `"`)
	r.caller = daemontest.Caller{Base: url}
	go func(p *process) { _, _ = io.Copy(io.Discard, p.stderr) }(r.process)
}

// end ends the daemon with a signal.
func (r *modeRun) end(t *testing.T, how os.Signal) {
	t.Helper()
	if err := r.process.Process.Signal(how); err != nil {
		t.Error(err)
	}
	_ = r.process.Wait() // It was killed.
}

// accepted sends a request and returns the id of its session, or "" if the daemon is killed meanwhile.
func (r *modeRun) accepted(t *testing.T, path, body string, headers ...string) string {
	t.Helper()
	resp, data, err := r.caller.Send(t.Context(), http.MethodPost, path, body, headers...)
	if err != nil {
		return ""
	}
	var s council.Summary
	if err := json.Unmarshal(data, &s); err != nil || resp.StatusCode >= http.StatusBadRequest {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	return s.ID
}

// earlier runs the sessions after which councils are convened, and returns their ids by the number of the case.
func (r *modeRun) earlier(t *testing.T, cases []modeCase) map[int]string {
	t.Helper()
	ids := map[int]string{}
	for n, c := range cases {
		if c.convened {
			ids[n] = r.accepted(t, "/v1/council", c.body(n, false), "Idempotency-Key", "earlier")
		}
	}
	return ids
}

// begin begins the session of a case in the background.
func (r *modeRun) begin(t *testing.T, n int, c modeCase, earlier string) string {
	t.Helper()
	if c.convened {
		return r.accepted(t, "/v1/council/"+earlier+"/convene", `{"background":true}`)
	}
	if c.judged {
		return r.accepted(t, "/v1/judge", c.body(n, true))
	}
	return r.accepted(t, "/v1/council", c.body(n, true))
}

// wait waits until a session has ended. It checks that the events of the session agree with its end.
func (r *modeRun) wait(t *testing.T, id string) (s council.Session) {
	t.Helper()
	daemontest.Until(t, func() bool {
		status, data := r.caller.Call(t, http.MethodGet, "/v1/council/"+id, "")
		if err := json.Unmarshal(data, &s); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, data, err)
		}
		return s.Status != council.StatusRunning
	})
	_, stream := r.caller.Call(t, http.MethodGet, "/v1/council/"+id+"/events", "")
	counts := map[council.EventType]int{}
	var texts daemontest.Texts
	for _, e := range daemontest.Events(t, stream) {
		counts[e.Type]++
		if err := texts.Take(e); err != nil {
			t.Error(err)
		}
	}
	decided := 0
	if s.Metadata.First != nil && s.Metadata.First.Why != council.FirstOnDemand {
		decided = 1
	}
	if counts[council.EventFirst] != decided || counts[council.EventDone] != 1 || texts.Final != s.Answer {
		t.Errorf("%s: events %v, the pieces add up to %q, the answer is %q", id, counts, texts.Final, s.Answer)
	}
	return s
}

// records counts the records of each session.
func (r *modeRun) records(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	seen := map[string]bool{}
	path := filepath.Join(r.dir, "records.jsonl")
	if _, err := os.Stat(path); err != nil {
		return counts
	}
	for _, record := range daemontest.Records(t, path) {
		pair := record.SessionID + " " + record.ReviewerID + " " + record.ModelID
		if seen[pair] {
			t.Errorf("the record of %s is there twice", pair)
		}
		seen[pair] = true
		session := record.SessionID
		if record.BlockID != nil { // The readings of a judged pair are sessions of one block.
			session = *record.BlockID
		}
		counts[session]++
	}
	return counts
}

func endOfMode(s council.Session, records int) modeEnd {
	e := modeEnd{
		Status: s.Status, Mode: s.Mode, Answer: s.Answer, AnswerFrom: s.AnswerFrom, Stages: s.Metadata.Stages,
		First: s.Metadata.First, Records: records,
	}
	for _, a := range s.Stage1 {
		e.Answers = append(e.Answers, fmt.Sprintf("%s %v %s", a.Model, a.Given, *a.Response))
	}
	for _, standing := range s.Metadata.AggregateRankings {
		e.Ranking = append(e.Ranking, standing.Model)
	}
	return e
}

// landed returns the calls of each session whose outcome a killed daemon has stored, in the words of scripted.asked.
func landed(t *testing.T, dir string) map[string][]string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "sessions")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
		t.Fatal(err)
	}
	j := openKilled(t, copied)
	calls := map[string][]string{}
	for _, row := range j.Rows("") {
		log, err := j.Read(t.Context(), journal.ID{Session: row.Session})
		if err != nil {
			t.Fatal(err)
		}
		readings := 1
		read := map[string]int{}
		for _, m := range log {
			for _, entry := range m.Entries {
				event, err := entry.Decode()
				if err != nil {
					t.Fatal(err)
				}
				call := ""
				switch data := event.Data.(type) {
				case council.Answer:
					if !data.Given {
						call = data.Model + ".answer"
					}
				case council.Review:
					call = council.ModelOf(data.Model) + ".review"
					read[call]++
					if read[call] < readings { // The provider cannot tell the two readings of a judge apart.
						call = ""
					}
				case council.Started:
					if readings = 1; slices.ContainsFunc(data.Reviewers, func(r string) bool { return r != council.ModelOf(r) }) {
						readings = 2
					}
				case council.Synthesis:
					call = data.Model + ".synthesis"
				}
				if call != "" {
					calls[row.Session] = append(calls[row.Session], call)
				}
			}
		}
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return calls
}

// came counts the requests for a question by their call.
func (r *modeRun) came(n int) map[string]int {
	counts := map[string]int{}
	for _, call := range r.provider.asked(mark(n)) {
		counts[call]++
	}
	return counts
}

// undisturbed runs each case without a kill. It returns how each ends, and how long each takes.
func undisturbed(t *testing.T, cases []modeCase) (ends []modeEnd, took []time.Duration) {
	t.Helper()
	r := newModeRun(t)
	earlier := r.earlier(t, cases)
	var sessions []council.Session
	for n, c := range cases {
		s := r.wait(t, r.begin(t, n, c, earlier[n]))
		sessions = append(sessions, s)
		took = append(took, time.Duration(s.Metadata.Timing.TotalMS*float64(time.Millisecond)))
	}
	r.end(t, os.Interrupt)
	records := r.records(t)
	for _, s := range sessions {
		ends = append(ends, endOfMode(s, records[s.ID]))
	}
	return ends, took
}

// Sessions of each mode run when their daemon is killed, each at a random moment of its life. In every other round the
// daemon that resumes them is killed too. Each session ends as it does without a kill. No call whose outcome is stored
// is sent again, the ledger has at least what the provider billed, and each record is there once.
func TestFaultF69ModesAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cases := modeCases()
	want, took := undisturbed(t, cases)
	for i, e := range want {
		if e.Status != council.StatusComplete || e.Answer == "" && !cases[i].judged {
			t.Fatalf("%s: %+v", cases[i].name, e)
		}
	}
	kills, resumed, kept, again := 0, 0, 0, 0
	stages := map[string]int{} // how many calls had landed at a kill, by case
	for round := 0; kills < *modeKills && !t.Failed(); round++ {
		r := newModeRun(t)
		earlier := r.earlier(t, cases)
		const life = 300 * time.Millisecond
		ids := make([]string, len(cases))
		var callers sync.WaitGroup
		for n, c := range cases {
			after := max(0, life-time.Duration(rng.Int64N(int64(took[n]+took[n]/4))))
			callers.Go(func() {
				time.Sleep(after)
				ids[n] = r.begin(t, n, c, earlier[n])
			})
		}
		time.Sleep(life)
		before := make([]map[string]int, len(cases)) // the requests that must not come again, by case
		for lives := range 1 + round%2 {
			if lives > 0 {
				r.start(t)
				time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
			}
			r.end(t, os.Kill)
			kills++
			callers.Wait()
			stored := landed(t, r.dir)
			for n := range cases {
				came := r.came(n)
				now := map[string]int{}
				for _, call := range slices.Concat(stored[ids[n]], stored[earlier[n]]) {
					now[call] = came[call]
				}
				for call, was := range before[n] {
					if now[call] != was {
						t.Errorf("%s: %s was stored, and came %d times before and %d times after a kill", cases[n].name, call, was, now[call])
					}
				}
				before[n] = now
				stages[fmt.Sprintf("%s %d", cases[n].name, len(stored[ids[n]]))]++
			}
		}
		r.start(t)
		sessions := map[int]council.Session{}
		for n, id := range ids {
			if id != "" { // The kill may come before the session is accepted.
				sessions[n] = r.wait(t, id)
			}
		}
		r.end(t, os.Interrupt)
		records := r.records(t)
		billed := r.provider.bills()
		if sum := daemontest.Ledger(t, filepath.Join(r.dir, "spend.jsonl")); sum.Total < billed || sum.Total-sum.Uncertain > billed || sum.Unknown > 0 {
			t.Errorf("the ledger has %v, %v of it uncertain, %d unknown; the provider billed %v", sum.Total, sum.Uncertain, sum.Unknown, billed)
		}
		for n, s := range sessions {
			resumed++
			name := cases[n].name
			if diff := cmp.Diff(want[n], endOfMode(s, records[s.ID])); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			came := r.came(n)
			for call, was := range before[n] {
				kept++
				if came[call] != was {
					t.Errorf("%s: %s was stored, and came %d times before and %d times after a kill", name, call, was, came[call])
				}
			}
			for _, count := range came {
				again += count - 1
			}
		}
	}
	t.Logf("calls stored at the kills: %v", stages)
	daemontest.Fault(t, "F69", "in every mode the session ends as without the kill, and no stored call comes again",
		"%d times kill -9: %d sessions of %d kinds resumed and ended as without it; 0 of %d stored calls came again, %d calls in flight did",
		kills, resumed, len(cases), kept, again)
}

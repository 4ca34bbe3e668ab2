package pipeline_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

func mapping(o *pipeline.Options) { o.Map = true }

// facts returns members that state these values of the port. A member with "" does not name it.
func facts(maps simllm.Maps, values ...string) []simllm.Model {
	models := members(len(values))
	for i, value := range values {
		models[i].FirstChunk, models[i].ChunkDelay = 0, 0
		models[i].Maps = maps
		if value != "" {
			models[i].Facts = []simllm.Fact{{Name: "the port", Value: value}}
		}
	}
	return models
}

// mapped asks for a map and returns the session, and the text that its deltas leave.
func (h harness) mapped(t *testing.T, r council.Request, change ...func(*council.Plan)) (*council.Session, string) {
	t.Helper()
	r.Map = true
	plan := h.plan(t, r)
	plan.Deltas = true
	for _, c := range change {
		c(&plan)
	}
	all := &tape{}
	s, err := h.Run(t.Context(), plan, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for _, a := range s.Stage1 {
		answers[a.Model] = *a.Response
	}
	if m := s.Metadata.Map; m != nil {
		lists := [][]council.Claim{m.Agreed, m.OnlyOneSaid}
		for _, d := range m.Disputed {
			lists = append(lists, d.Sides)
		}
		for _, c := range slices.Concat(lists...) {
			for _, q := range c.Quotes {
				if q.Quote == "" || !strings.Contains(answers[q.Model], q.Quote) {
					t.Errorf("%q does not stand in the answer of %s", q.Quote, q.Model)
				}
			}
		}
	}
	if last := all.entries[len(all.entries)-1]; (last.Type == council.EventMap) != (s.Metadata.Map != nil) {
		t.Errorf("the map is %+v, the last event is %s", s.Metadata.Map, last.Type)
	}
	return s, written(all.entries)
}

// sides returns the members on each side of the disputes of a map.
func sides(m *council.Map) (all []string) {
	for _, d := range m.Disputed {
		for _, side := range d.Sides {
			words := []string{side.Claim + ":"}
			for _, q := range side.Quotes {
				words = append(words, q.Model)
			}
			all = append(all, strings.Join(words, " "))
		}
	}
	return all
}

// The daemon finds planted contradictions, and none where the answers are the same.
func TestMap(t *testing.T) {
	for _, tt := range []struct {
		name    string
		values  []string
		want    []string
		request council.Request
	}{
		{name: "two sides", values: []string{"80", "8080", "80"}, want: []string{"80: amber cedar", "8080: birch"}},
		{name: "three sides", values: []string{"80", "8080", "443"}, want: []string{"80: amber", "8080: birch", "443: cedar"}},
		{name: "one does not say", values: []string{"80", "", "8080"}, want: []string{"80: amber", "8080: cedar"}},
		{name: "all agree", values: []string{"80", "80", "80"}},
		{name: "only one says", values: []string{"80", "", ""}},
		{name: "nobody says", values: []string{"", "", ""}},
		{
			name: "without reviews", values: []string{"80", "8080", "80"}, want: []string{"80: amber cedar", "8080: birch"},
			request: council.Request{Mode: council.ModeSynthesis},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := build(t, facts(simllm.Maps{}, tt.values...), mapping)
			tt.request.Seed = new(int64(3))
			s, shown := h.mapped(t, tt.request)
			m := s.Metadata.Map
			got := sides(m)
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" || m.Reason != nil || m.Dropped != 0 {
				t.Errorf("%s\n%+v", diff, m)
			}
			about := func(c council.Claim) bool { return strings.HasPrefix(c.Claim, "the port is 80") }
			if (tt.name == "all agree") != slices.ContainsFunc(m.Agreed, about) || (tt.name == "only one says") != slices.ContainsFunc(m.OnlyOneSaid, about) {
				t.Errorf("agreed %+v, only one said %+v", m.Agreed, m.OnlyOneSaid)
			}
			if len(m.Open) != 1 {
				t.Errorf("open questions %q", m.Open)
			}
			if shown != s.Answer || s.Answer != s.Stage3.Response || strings.Contains(s.Answer, "===") || strings.Contains(s.Answer, `"agreed"`) {
				t.Errorf("the answer is %q, shown was %q", s.Answer, shown)
			}
			if s.Metadata.Versions.Synthesis != "synthesis-2" {
				t.Errorf("the prompt is %s", s.Metadata.Versions.Synthesis)
			}
			plain := h.run(t, tt.request)
			if plain.Metadata.Map != nil || plain.Answer != s.Answer || plain.Stage3.Tail != "" || plain.Metadata.Versions.Synthesis != "synthesis-1" {
				t.Errorf("without a map the answer is %q, the map %+v", plain.Answer, plain.Metadata.Map)
			}
			if *plain.Metadata.Usage.ByStage[council.Stage3].OutputTokens >= *s.Metadata.Usage.ByStage[council.Stage3].OutputTokens {
				t.Error("the tokens of the map are not counted")
			}
		})
	}
}

// A map has no dispute between identical answers, or between answers of one model, whatever the chairman claims.
func TestMapOfOneText(t *testing.T) {
	lies := func(m simllm.Model) simllm.Model {
		m.Reply = func(task simllm.Task) (string, bool) {
			switch task.Kind {
			case simllm.Question:
				return "The port is 80, as always. It is never changed.", true
			case simllm.Synthesis:
				quote := func(label, text string) string { return fmt.Sprintf(`{"answer": %q, "quote": %q}`, label, text) }
				return "80.\n" + task.Map + "\n" + `{"agreed": [{"claim": "80", "quotes": [` + quote("Answer 1", "The port is 80") + "," +
					quote("Answer 2", "The port is 80") + `]}], "disputed": [{"about": "the port", "sides": [{"claim": "80", "quotes": [` +
					quote("Answer 1", "The port is 80") + `]}, {"claim": "never", "quotes": [` + quote("Answer 2", "It is never changed.") +
					`]}]}], "only_one_said": [{"claim": "80", "quotes": [` + quote("Answer 1", "The port is 80") + `]}], "open": []}`, true
			default:
				return "", false
			}
		}
		return m
	}
	m := members(3)
	h := build(t, []simllm.Model{lies(m[0]), lies(m[1]), lies(m[2])}, mapping)
	s, _ := h.mapped(t, council.Request{})
	if m := s.Metadata.Map; len(m.Agreed) != 1 || len(m.Disputed) != 0 || len(m.OnlyOneSaid) != 0 || m.Dropped != 3 {
		t.Errorf("of three models: %+v", m)
	}
	s, _ = h.mapped(t, council.Request{Models: []string{"birch", "birch"}})
	if m := s.Metadata.Map; len(m.Agreed) != 0 || len(m.Disputed) != 0 || m.Dropped != 5 {
		t.Errorf("of two seats of a model: %+v", m)
	}
}

// What a chairman invents or leaves out does not reach the map.
func TestMapOfBadChairmen(t *testing.T) {
	values := []string{"80", "8080", "80"}
	invented, dropped, missed := 0, 0, 0
	for i := range 20 {
		h := build(t, facts(simllm.Maps{Invent: 0.3, Miss: 0.5}, values...), mapping)
		s, _ := h.mapped(t, council.Request{Query: fmt.Sprint("Which port, number ", i, "?")})
		m := s.Metadata.Map
		numbers := strings.Count(s.Stage3.Tail, "Simulated quote number")
		if numbers > m.Dropped {
			t.Errorf("%d quotes were invented, %d dropped", numbers, m.Dropped)
		}
		if data, err := json.Marshal(m); err != nil || strings.Contains(string(data), "Simulated quote") {
			t.Errorf("%v: an invented quote is in the map: %s", err, data)
		}
		if m.Reason != nil {
			if *m.Reason != council.MapQuotesInvented || m.Agreed != nil {
				t.Errorf("the map is %+v", m)
			}
			continue
		}
		invented += numbers
		dropped += m.Dropped
		if !strings.Contains(s.Stage3.Tail, "the value of the port") {
			missed++
			if len(m.Disputed) > 0 {
				t.Errorf("a dispute was found that the chairman did not name: %+v", m.Disputed)
			}
		}
	}
	if invented == 0 || dropped == 0 || missed == 0 {
		t.Errorf("%d quotes were invented, %d dropped, %d disputes missed", invented, dropped, missed)
	}
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 500, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}
	for _, tt := range []struct {
		name   string
		maps   simllm.Maps
		faults int // how many chairmen fail
		reason council.MapReason
	}{
		{"inventor", simllm.Maps{Invent: 1}, 0, council.MapQuotesInvented},
		{"silent", simllm.Maps{Form: simllm.MapNone}, 0, council.MapNone},
		{"cut", simllm.Maps{Form: simllm.MapCut}, 0, council.MapCutOff},
		{"prose", simllm.Maps{Form: simllm.MapProse}, 0, council.MapNotJSON},
		{"unmarked", simllm.Maps{Form: simllm.MapUnmarked}, 0, ""},
		{"second chairman", simllm.Maps{}, 1, ""},
		{"no chairman", simllm.Maps{}, 3, council.MapNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			models := facts(tt.maps, values...)
			for i := range tt.faults {
				models[i].Faults = []simllm.Fault{down}
			}
			s, shown := build(t, models, mapping).mapped(t, council.Request{})
			m := s.Metadata.Map
			if got := m.Reason; (got == nil) != (tt.reason == "") || got != nil && *got != tt.reason {
				t.Errorf("the map is %+v", m)
			}
			if tt.reason == "" && len(m.Disputed) != 1 || tt.reason != "" && m.Disputed != nil {
				t.Errorf("disputed is %+v", m.Disputed)
			}
			if shown != s.Answer || strings.Contains(s.Answer, `"agreed"`) || strings.Contains(s.Answer, "=== MAP") || s.Answer == "" {
				t.Errorf("the answer is %q, shown was %q", s.Answer, shown)
			}
		})
	}
}

// A token limit that is reached behind the separator leaves a whole answer. Before it, the chairman fails.
func TestMapAtTheTokenLimit(t *testing.T) {
	h := build(t, facts(simllm.Maps{}, "80", "8080"), mapping)
	asked := council.Request{Seed: new(int64(3))}
	s, _ := h.mapped(t, asked)
	answer := len(s.Answer) / 4 // the tokens of simulated texts
	limited := func(limit int) *council.Session {
		s, shown := h.mapped(t, asked, func(p *council.Plan) {
			p.Stages[2].Seats[0].Profile = &council.Profile{MaxOutputTokens: limit}
		})
		if shown != s.Answer {
			t.Errorf("with %d tokens %q was shown, the answer is %q", limit, shown, s.Answer)
		}
		return s
	}
	cut := limited(answer + 40)
	if m := cut.Metadata.Map; cut.Status != council.StatusComplete || cut.Answer != s.Answer || m.Reason == nil || *m.Reason != council.MapCutOff {
		t.Errorf("behind the separator: %s, %+v, %q", cut.Status, m, cut.Answer)
	}
	if cut := limited(answer - 40); cut.Status != council.StatusDegraded || cut.Degradation[0].Code != council.FailLength {
		t.Errorf("before the separator: %s, %v", cut.Status, missing(cut))
	}
}

// Only plans whose chairman writes prose for our own interface ask for a map, and each prompt has a marker of its own.
func TestPlansWithMaps(t *testing.T) {
	m := members(3)
	h := build(t, m, mapping)
	for _, tt := range []struct {
		name string
		r    council.Request
		want bool
	}{
		{"asked for", council.Request{Map: true}, true},
		{"synthesis", council.Request{Map: true, Mode: council.ModeSynthesis}, true},
		{"first", council.Request{Map: true, First: new(1)}, true},
		{"not asked for", council.Request{}, false},
		{"a schema", council.Request{Map: true, OutputSchema: []byte(verdictSchema)}, false},
		{"ranked", council.Request{Map: true, Mode: council.ModeRanked}, false},
		{"vote", council.Request{Map: true, Mode: council.ModeVote, AnswerForm: number}, false},
		{"single", council.Request{Map: true, Models: []string{"amber"}, Direct: true}, false},
		{"measured", council.Request{Map: true, Whole: true}, false},
		{"a side request", council.Request{Map: true, Side: true}, false},
	} {
		plan := h.plan(t, tt.r)
		prompt := plan.Stage(council.KindSynthesis).Prompt
		if plan.Map != tt.want || (prompt == "synthesis-2") != tt.want || (plan.MarkerKey != "") != tt.want {
			t.Errorf("%s: map %v, prompt %q, key %q", tt.name, plan.Map, prompt, plan.MarkerKey)
		}
		if needs := pipeline.Needs(plan, []council.Stage{council.Stage3}); slices.Contains(needs, "synthesis-2") != tt.want {
			t.Errorf("%s: a process needs %v", tt.name, needs)
		}
	}
	if plan := build(t, m).plan(t, council.Request{Map: true}); plan.Map {
		t.Error("a map was planned although the setting is off")
	}
	plan := h.plan(t, council.Request{Map: true, First: new(1)})
	s, err := h.Run(t.Context(), plan, nil, nil)
	if err != nil || s.Metadata.Map != nil {
		t.Fatalf("%v: a session that asked one member has the map %+v", err, s.Metadata.Map)
	}
	again, err := h.Convene(plan, s)
	if err != nil || !again.Map || again.MarkerKey == plan.MarkerKey || again.MarkerKey == "" {
		t.Errorf("%v: the convened plan has map %v and the key of the first one, or none", err, again.Map)
	}
	if s, err = h.Run(t.Context(), again, nil, nil); err != nil || s.Metadata.Map == nil {
		t.Errorf("%v: the convened session has no map", err)
	}
	first, second := anonymize.MarkersFrom(plan.MarkerKey), anonymize.MarkersFrom(again.MarkerKey)
	if first("chairman") == second("chairman") {
		t.Error("two prompts have one marker")
	}
}

// A process that lacks the prompt does not call the chairman. The best answer takes its place.
func TestMapNeedsItsPrompt(t *testing.T) {
	h := build(t, members(3), mapping)
	plan := h.plan(t, council.Request{Map: true})
	plan.Stages[2].Prompt = "synthesis-3"
	all := &tape{}
	before := &tape{}
	if _, err := h.Run(t.Context(), h.plan(t, council.Request{Map: true}), before, before.log(nil)); err != nil {
		t.Fatal(err)
	}
	past := before.entries[:slices.IndexFunc(before.entries, func(e runlog.Entry) bool { return e.Type == council.EventStage2 })+1]
	calls := h.requests()
	s, err := h.Run(t.Context(), plan, all, all.log(past))
	if err != nil || h.requests() != calls || *s.Stage3.Fallback != council.FallbackTopRanked || *s.Metadata.Map.Reason != council.MapNone {
		t.Errorf("%v: %d calls, %+v", err, h.requests()-calls, s)
	}
}

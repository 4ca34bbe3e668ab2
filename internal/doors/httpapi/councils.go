package httpapi

import (
	"net/http"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// CouncilList is the body of GET /v1/councils.
type CouncilList struct {
	Councils []CouncilCard `json:"councils"`
	// TakesEvents says that the daemon accepts events of other councils. It then has a leaderboard over these events.
	TakesEvents bool `json:"takes_events"`
	// TimeoutMS is the longest time that a session may take. It is 0 if the caller may ask no council. RetentionMS is how
	// long a session can be read after its end. It is 0 if sessions are not kept.
	TimeoutMS   int64 `json:"timeout_ms"`
	RetentionMS int64 `json:"retention_ms"`
	// Demo is null unless the daemon is a demo.
	Demo *Demo `json:"demo"`
}

// Demo tells clients that the models are simulated and that nothing is paid.
type Demo struct {
	// Questions are the questions that the simulated models answer with texts written for the demo.
	Questions []string `json:"questions"`
}

// CouncilCard describes a council that the caller may ask.
type CouncilCard struct {
	Name          string   `json:"name"`    // "default" without a roster
	Default       bool     `json:"default"` // the council of requests that name none
	Members       []string `json:"members"`
	Reviewers     []string `json:"reviewers"`
	Chairman      string   `json:"chairman"` // "" if no chairman writes
	Fallbacks     []string `json:"fallbacks"`
	AllowedModels []string `json:"allowed_models"`
	// Mode, First and AnswerForm apply to requests that name none.
	Mode       council.Mode        `json:"mode"`
	First      *int                `json:"first"`       // null if all members are asked at once
	AnswerForm *council.AnswerForm `json:"answer_form"` // null if the form of answers is open
	// Calls is how many calls a session makes if none fails. LeastCalls is how many it makes if the members that begin
	// decide it.
	Calls      int `json:"calls"`
	LeastCalls int `json:"least_calls"`
	// Sentence says how many calls a question takes and about what it costs. LimitSentence says what a cost limit of a
	// session does.
	Sentence      string   `json:"sentence"`
	LimitSentence string   `json:"limit_sentence"`
	MaxCostUSD    *float64 `json:"max_cost_usd"`
	MaxQueryBytes int64    `json:"max_query_bytes"`
	KeepsSessions bool     `json:"keeps_sessions"` // sessions in the background outlive the daemon
	KeepsFeedback bool     `json:"keeps_feedback"` // the daemon keeps what people say about sessions
	Lately        *Lately  `json:"lately"`         // null if no session is known
}

// Lately says how long the newest sessions of a council took, and what the sessions cost. It covers at most [maxLately]
// sessions. They are sessions that this daemon knows and that ended with an answer. Times are in milliseconds.
type Lately struct {
	Sessions int     `json:"sessions"` // how many sessions it covers
	MedianMS float64 `json:"median_ms"`
	P90MS    float64 `json:"p90_ms"` // 90 % of the sessions took at most this long
	// Stage1MS, Stage2MS and Stage3MS are the medians of the three stages.
	Stage1MS float64 `json:"stage1_ms"`
	Stage2MS float64 `json:"stage2_ms"`
	Stage3MS float64 `json:"stage3_ms"`
	// MedianCostUSD is the median cost of the sessions with a known cost. It is null if there are no such sessions.
	// Priced is the number of these sessions.
	MedianCostUSD *float64 `json:"median_cost_usd"`
	Priced        int      `json:"priced"`
}

// maxLately is the most sessions that Lately covers.
const maxLately = 50

// Offers returns the councils that the caller may ask, the default one first. If Options.Models is empty, it returns no
// councils.
func (a *API) Offers(r *http.Request) ([]Offer, error) {
	if len(a.o.Models) == 0 {
		return nil, nil
	}
	if a.o.Offers != nil {
		return a.o.Offers(a.label(r))
	}
	plan, err := a.o.Council.Prepare(council.Request{Query: "?"})
	return []Offer{{Plan: plan, Default: true}}, err
}

// councils is GET /v1/councils.
func (a *API) councils(w http.ResponseWriter, r *http.Request) error {
	list := CouncilList{Councils: []CouncilCard{}, TakesEvents: a.o.Intake != nil}
	if a.o.Shown.Demo != nil {
		list.Demo = &Demo{Questions: a.o.Shown.Demo}
	}
	if a.o.Kept.Kept > 0 && a.o.Kept.KeptBytes > 0 {
		list.RetentionMS = a.o.Kept.Retention.Milliseconds()
	}
	offers, err := a.Offers(r)
	if err != nil {
		return err
	}
	for _, offer := range offers {
		plan := offer.Plan
		list.TimeoutMS = max(list.TimeoutMS, plan.Timeout.Milliseconds())
		members := modelsOf(plan.Members())
		reviewers := modelsOf(plan.Reviewers())
		chairmen := modelsOf(plan.Chairmen())
		newest := lately(a.sessions.Lately(plan.Council(), maxLately))
		estimate := a.o.Spend.Estimate(plan)
		expect(&estimate, newest)
		var first *int
		if plan.First > 0 {
			first = &plan.First
		}
		list.Councils = append(list.Councils, CouncilCard{
			Name:          plan.CouncilLabel(),
			Default:       offer.Default,
			Members:       members,
			Reviewers:     reviewers,
			Chairman:      plan.Chairman(),
			Fallbacks:     chairmen[min(1, len(chairmen)):],
			AllowedModels: a.allowed(plan),
			Mode:          plan.Mode,
			First:         first,
			AnswerForm:    plan.Form,
			Calls:         estimate.Calls,
			LeastCalls:    estimate.LeastCalls,
			Sentence:      estimate.UsualSentence,
			LimitSentence: estimate.LimitSentence,
			MaxCostUSD:    plan.MaxCostUSD,
			MaxQueryBytes: a.o.Shown.MaxQueryBytes,
			KeepsSessions: a.o.Kept.Journal != nil,
			KeepsFeedback: a.o.Labels != nil && a.o.Labels.Key() != "",
			Lately:        newest,
		})
	}
	return WriteJSON(w, http.StatusOK, list)
}

// allowed returns the models that a request may name in addition to the members, reviewers and chairmen of a council.
func (a *API) allowed(plan council.Plan) []string {
	if plan.CouncilName != "" {
		return []string{} // A request cannot change the models of the roster's councils.
	}
	return append([]string{}, a.o.AllowedModels...)
}

// modelsOf returns the names that a request must give to ask these members.
func modelsOf(members []council.Member) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = council.ModelOf(m.ID)
	}
	return names
}

// lately summarises the times and costs of sessions. It returns nil if spent is empty.
func lately(spent []sessions.Spent) *Lately {
	if len(spent) == 0 {
		return nil
	}
	// least returns a quantile of the values that are not nil, and the number of these values. The argument share is
	// the quantile, from 0 to 1: for 0.5, least returns the median.
	least := func(share float64, of func(sessions.Spent) *float64) (value *float64, known int) {
		var values []float64
		for _, s := range spent {
			if v := of(s); v != nil {
				values = append(values, *v)
			}
		}
		if len(values) == 0 {
			return nil, 0
		}
		slices.Sort(values)
		return &values[int(share*float64(len(values)-1)+0.5)], len(values)
	}
	time := func(share float64, of func(council.Timing) float64) float64 {
		value, _ := least(share, func(s sessions.Spent) *float64 { return new(of(s.Timing)) })
		return *value
	}
	total := func(t council.Timing) float64 { return t.TotalMS }
	l := &Lately{
		Sessions: len(spent), MedianMS: time(0.5, total), P90MS: time(0.9, total),
		Stage1MS: time(0.5, func(t council.Timing) float64 { return t.Stage1MS }),
		Stage2MS: time(0.5, func(t council.Timing) float64 { return t.Stage2MS }),
		Stage3MS: time(0.5, func(t council.Timing) float64 { return t.Stage3MS }),
	}
	l.MedianCostUSD, l.Priced = least(0.5, func(s sessions.Spent) *float64 { return s.CostUSD })
	return l
}

package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
)

// MaxRosterBytes is how many bytes a roster may have.
const MaxRosterBytes = 256 << 10

// Roster is the content of a roster, after all checks.
type Roster struct {
	Hash      string // 8 hexadecimal digits of the file's SHA-256
	Default   string // the council for requests that name none
	Models    []Model
	Councils  []Council
	Classes   []string // the classes of data, the lowest first
	Tokens    []Token
	Providers []Provider

	secrets []secretPlace // where ReadRoster finds the secrets of Providers
}

// Model is an entry of the roster's models.
type Model struct {
	ID string
	// Provider is the value of the key "provider". It is "" for the default provider, and also if the model's name
	// begins with the name of the provider.
	Provider string
	// Member is the seat that the model takes. Its Model is the name that the model would have in LLM_COUNCIL_MODELS.
	Member council.Member
	// PublishAs is the public name of the model in events. If it is "", events name the model council.OtherModel.
	PublishAs string
	// Clearance is the highest class that the model may see. It is "" if the roster has no classes.
	Clearance string
	// Price is nil if the roster gives no price.
	Price *spend.Tariff
}

// Council is an entry of the roster's councils. Its seats are ids of models.
type Council struct {
	Name       string
	Members    []string // at least two, but exactly one with council.ModeSingle
	Mode       council.Mode
	First      int                 // 0 asks all members at once
	AnswerForm *council.AnswerForm // nil leaves the form open
	Reviewers  []string            // If it is empty, the members review.
	Chairman   string              // If it is "", the first member writes.
	Fallbacks  []string            // If it is empty, the other members follow by rank.
	Quorum     int                 // 0 stands for more than half of the members
	DataClass  string              // the class of questions that name none. "" stands for the highest class.
	Audience   []string            // the labels of the tokens that may ask the council. If it is empty, every token may.

	// If one of the next fields has its zero value, the setting of the daemon applies.
	MaxCostUSD     *float64
	MaxTotalTokens *int64
	Timeout        *time.Duration
	Tools          council.ToolsPolicy
	SideRequests   string // council.SideMember, council.SideCouncil or the id of a model
	DegradedNote   *bool
}

// rights returns the rights that a token may have.
func rights() []string {
	return []string{
		string(council.MayAsk), string(council.MayReport), string(council.MayEvents), string(council.MayAdmin),
	}
}

// Model returns the model with an id. It reports false if the roster has none.
func (r *Roster) Model(id string) (Model, bool) {
	i := slices.IndexFunc(r.Models, func(m Model) bool { return m.ID == id })
	if i < 0 {
		return Model{}, false
	}
	return r.Models[i], true
}

// Members returns the seat that each model takes, by its id.
func (r *Roster) Members() map[string]council.Member {
	members := map[string]council.Member{}
	for _, m := range r.Models {
		members[m.ID] = m.Member
	}
	return members
}

// Warnings returns messages about councils that are probably mistakes, but may be intended. The argument has the names of
// all providers.
func (r *Roster) Warnings(providers []string) []string {
	var warnings []string
	for _, c := range r.Councils {
		outside := slices.ContainsFunc(c.Reviewers, func(id string) bool { return !slices.Contains(c.Members, id) })
		if len(c.Members) == 2 && c.Mode.Reviews() && !outside {
			warnings = append(warnings, fmt.Sprintf("the council %s has two members: each reviews only the other's answer, so the "+
				"reviews cost money and rank nothing; add a third member, write mode: synthesis, or name reviewers that are not members", c.Name))
		}
		if c.First < 2 {
			continue
		}
		if c.AnswerForm == nil {
			warnings = append(warnings, fmt.Sprintf("the council %s has first: %d and no answer_form: a question without one asks all members at once, because answers without a form cannot be compared; add answer_form", c.Name, c.First))
		}
		var makers []string
		for _, id := range c.Members[:c.First] {
			m, _ := r.Model(id)
			makers = append(makers, cmp.Or(m.Member.Maker, council.Maker(m.Member.Model, providers)))
		}
		if len(slices.Compact(makers)) == 1 {
			warnings = append(warnings, fmt.Sprintf("the first %d members of the council %s have one maker, %s: begin with members of two makers, because agreement between makers means more", c.First, c.Name, makers[0]))
		}
	}
	return warnings
}

// CouncilHash returns 8 hexadecimal digits of a SHA-256 over everything that shapes the votes of a council: the rule by
// which the orders of the answers are drawn, the temperatures, and the provider, model, system prompt, effort, output
// limit and body of each member and reviewer. The hash does not cover prices, cost limits, audiences, the chairman and
// the ids, because records before and after a change of one of these belong together.
func CouncilHash(order council.Order, answers, reviews council.Sampling, members, reviewers []council.Member) string {
	type seat struct {
		Model           string                     `json:"model"` // with its provider
		System          string                     `json:"system"`
		Effort          string                     `json:"reasoning_effort"`
		MaxOutputTokens *int                       `json:"max_output_tokens"`
		Body            map[string]json.RawMessage `json:"body"`
	}
	seats := func(of []council.Member) []seat {
		all := make([]seat, len(of))
		for i, m := range of {
			all[i] = seat{Model: m.Model, MaxOutputTokens: answers.MaxOutputTokens}
			if p := m.Profile; p != nil {
				all[i].System = p.System
				all[i].Effort = p.ReasoningEffort
				all[i].Body = p.Body
				if p.MaxOutputTokens > 0 {
					all[i].MaxOutputTokens = &p.MaxOutputTokens
				}
			}
		}
		return all
	}
	text, err := json.Marshal(struct { // Marshal sorts the keys of a map
		Order             council.Order `json:"order"`
		Temperature       *float64      `json:"temperature"`
		ReviewTemperature *float64      `json:"review_temperature"`
		Members           []seat        `json:"members"`
		Reviewers         []seat        `json:"reviewers"`
	}{order, answers.Temperature, reviews.Temperature, seats(members), seats(reviewers)})
	if err != nil {
		return "invalid" // A body that is no JSON causes this, but ParseRoster never makes one.
	}
	return short(text)
}

// short is a hash of the data: 8 hexadecimal digits of a SHA-256.
func short(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:4])
}

// RosterProblem is a problem of a roster.
type RosterProblem struct {
	Line    int    // from 1, or 0 for a problem of the whole file
	Message string // what is wrong, and how to fix it
}

// RosterProblems are all problems of a roster, in the order of their lines.
type RosterProblems []RosterProblem

// maxProblems is how many problems of a roster are shown.
const maxProblems = 50

// Error returns the problems, each on a line.
func (p RosterProblems) Error() string {
	lines := make([]string, 0, min(len(p), maxProblems)+1)
	for i, problem := range p {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("and %d more", len(p)-i))
			break
		}
		text := problem.Message
		if problem.Line > 0 {
			text = fmt.Sprintf("line %d: %s", problem.Line, text)
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/spend"
)

// defaultWait is how long a call waits for the end of a session by default, in seconds. maxWait is the longest wait
// that a call may ask for. Many clients give up after a minute.
const (
	defaultWait = 50
	maxWait     = 600
)

// councilArgs are the arguments of the tool council. Two calls ask the same question if all except the last two
// arguments are equal.
type councilArgs struct {
	Question   string  `json:"question" jsonschema:"The question, with everything the council has to know: it sees nothing else."`
	Council    string  `json:"council,omitempty" jsonschema:"The name of the council; leave it out for the default one."`
	Category   string  `json:"category,omitempty" jsonschema:"What the question is about, for the statistics."`
	MaxCostUSD float64 `json:"max_cost_usd,omitempty" jsonschema:"Cost limit of the session in US dollars. The session stops asking once this is spent. Calls that are under way may pass it, unless limits are hard."`

	Mode       council.Mode        `json:"mode,omitempty" jsonschema:"Which stages run; leave it out for the council's own. council: all. ranked: the best answer, word for word. synthesis: no reviews. vote: the most frequent answer. single: one model."`
	First      *int                `json:"first,omitempty" jsonschema:"How many members to ask first, at least 1 and fewer than all; the others are asked if these answers differ."`
	AnswerForm *council.AnswerForm `json:"answer_form,omitempty" jsonschema:"The form of the answers, so that they can be compared; vote needs it. Types: exact, normalised, choice (with options), number, json."`

	Wait  int  `json:"wait_seconds,omitempty" jsonschema:"How long to wait for the answer, in seconds. The session continues afterwards."`
	Fresh bool `json:"fresh,omitempty" jsonschema:"Ask and pay again, even if the same question is running or was answered a moment ago."`
}

// judgeArgs are the arguments of the tool judge. Two calls are the same if all except the last two arguments are equal.
type judgeArgs struct {
	Question   string          `json:"question" jsonschema:"The question that the answers are for, with everything a judge has to know."`
	Answers    []judgedAnswer  `json:"answers" jsonschema:"The answers to judge: two to compare, up to 26 to rank, or one with a rubric."`
	Council    string          `json:"council,omitempty" jsonschema:"The council whose reviewers judge; leave it out for the default one."`
	Orders     council.Orders  `json:"orders,omitempty" jsonschema:"More than two answers are shown to each judge in one order (the default) or in both; two are always shown in both."`
	Exclude    council.Exclude `json:"exclude,omitempty" jsonschema:"Whose answers a judge does not read: family (its maker's, the default), self (its model's) or none."`
	Criteria   string          `json:"criteria,omitempty" jsonschema:"What the judges look for, instead of general quality."`
	Rubric     []string        `json:"rubric,omitempty" jsonschema:"Statements about the one answer, on which the judges vote."`
	Category   string          `json:"category,omitempty" jsonschema:"What the question is about, for the statistics."`
	MaxCostUSD float64         `json:"max_cost_usd,omitempty" jsonschema:"Cost limit of the session in US dollars. The session stops asking once this is spent. Calls that are under way may pass it, unless limits are hard."`

	Wait  int  `json:"wait_seconds,omitempty" jsonschema:"How long to wait for the result, in seconds. The session continues afterwards."`
	Fresh bool `json:"fresh,omitempty" jsonschema:"Have the same answers judged again, and pay again."`
}

// judgedAnswer is an answer of judgeArgs.
type judgedAnswer struct {
	ID     string `json:"id"`
	Text   string `json:"text"`
	Author string `json:"author,omitempty" jsonschema:"The model that wrote the text, such as ~openai/gpt-latest."`
}

// resultArgs are the arguments of the tools council_result and convene.
type resultArgs struct {
	ID   string `json:"session_id" jsonschema:"The session_id of a result of council or convene."`
	Wait int    `json:"wait_seconds,omitempty" jsonschema:"How long to wait for the end of the session, in seconds."`
}

// cancelArgs are the arguments of the tool council_cancel.
type cancelArgs struct {
	ID string `json:"session_id" jsonschema:"The session_id of a result of council."`
}

// reportArgs are the arguments of the tools bias_report and leaderboard.
type reportArgs struct {
	Days     *int   `json:"days,omitempty" jsonschema:"How many days to look back; 0 for no limit; default: the daemon's setting."`
	Sessions *int   `json:"sessions,omitempty" jsonschema:"How many sessions to look back; 0 for no limit; default: the daemon's setting."`
	Category string `json:"category,omitempty" jsonschema:"Only sessions of this category."`
}

// ToolResult is what the tools council, judge, convene, council_result and council_cancel return.
type ToolResult struct {
	SessionID   string                `json:"session_id"`
	Status      council.Status        `json:"status" jsonschema:"running, complete, degraded (some model is missing), failed or cancelled"`
	Answer      *string               `json:"answer" jsonschema:"the final answer; null while the session runs, or if there is none"`
	AnswerFrom  *string               `json:"answer_from" jsonschema:"whose text the answer is; null if there is none"`
	First       *string               `json:"first" jsonschema:"what the first members decided; null if all were asked at once"`
	Agreement   *string               `json:"agreement" jsonschema:"whether the reviewers agree on an order more than by chance; null if there were no reviews"`
	Disputed    []council.Dispute     `json:"disputed" jsonschema:"questions on which the answers differ, as the chairman reads them, with quotes; null if unknown"`
	Ranking     []Ranked              `json:"ranking" jsonschema:"the members' answers, the best first, as the members ranked each other"`
	Degradation []council.Degradation `json:"degradation" jsonschema:"what is missing from the session, and why"`
	Warnings    []council.Warning     `json:"warnings"`
	CostUSD     *float64              `json:"cost_usd" jsonschema:"null if it is unknown"`
	Judgement   any                   `json:"judgement" jsonschema:"what the judges of given answers said: the schema Judgement in /openapi.yaml; null if no answers were given"`
	Next        *string               `json:"next" jsonschema:"what to call for the answer; null when the session has ended"`
}

// Ranked is a member's place in the ranking.
type Ranked struct {
	Rank  *int     `json:"rank" jsonschema:"null if no ballot ranked the answer"`
	Model string   `json:"model"`
	Score *float64 `json:"score" jsonschema:"Borda score: 1 was always first, 0 always last"`
}

// addTools adds the tools to the server.
func (s *Server) addTools() {
	categories := func(p map[string]*jsonschema.Schema) {
		for _, name := range council.Categories() {
			p["category"].Enum = append(p["category"].Enum, name)
		}
	}
	wait := func(p map[string]*jsonschema.Schema) {
		p["wait_seconds"].Minimum = new(0.0)
		p["wait_seconds"].Maximum = new(float64(maxWait))
		p["wait_seconds"].Default = json.RawMessage(strconv.Itoa(defaultWait))
	}
	mcp.AddTool(s.server, &mcp.Tool{
		Name: "council", Title: "Ask the council",
		Description: "Put one question to a council of several language models: they answer, rank each other's " +
			"anonymised answers, and a chairman writes the final answer. It takes minutes and costs several model " +
			"calls; some modes leave stages out and cost less. The same question asked again within ten minutes returns " +
			"the same session, and is paid for once.",
		InputSchema: schema[councilArgs](categories, wait, func(p map[string]*jsonschema.Schema) {
			p["question"].MinLength = new(1)
			for _, mode := range council.Modes() {
				p["mode"].Enum = append(p["mode"].Enum, string(mode))
			}
			p["max_cost_usd"].ExclusiveMinimum = new(0.0)
		}),
		Annotations: &mcp.ToolAnnotations{OpenWorldHint: new(true), DestructiveHint: new(false)},
	}, s.ask)
	mcp.AddTool(s.server, &mcp.Tool{
		Name: "judge", Title: "Have answers judged",
		Description: "Have the reviewers of a council judge answers that exist already. Each judge reads two " +
			"answers in both orders, and its vote counts only if it prefers the same answer both times. The result " +
			"is what these judges prefer, which need not be true. It " +
			"costs one model call for each judge and order.",
		InputSchema: schema[judgeArgs](categories, wait, func(p map[string]*jsonschema.Schema) {
			p["question"].MinLength = new(1)
			p["answers"].Type = "array"
			p["answers"].Types = nil
			p["answers"].MinItems = new(1)
			p["answers"].MaxItems = new(council.MaxJudged)
			p["orders"].Enum = []any{council.OrdersOne, council.OrdersBoth}
			p["exclude"].Enum = []any{council.ExcludeFamily, council.ExcludeSelf, council.ExcludeNone}
			p["max_cost_usd"].ExclusiveMinimum = new(0.0)
		}),
		Annotations: &mcp.ToolAnnotations{OpenWorldHint: new(true), DestructiveHint: new(false)},
	}, s.judge)
	mcp.AddTool(s.server, &mcp.Tool{
		Name: "convene", Title: "Ask the whole council",
		Description: "Ask the other members too, after a session that ended with the answer of the first members. " +
			"The first answers count, and are not paid for again. The result is a new session.",
		InputSchema: schema[resultArgs](wait),
		Annotations: &mcp.ToolAnnotations{OpenWorldHint: new(true), DestructiveHint: new(false), IdempotentHint: true},
	}, s.convene)
	mcp.AddTool(s.server, &mcp.Tool{
		Name: "council_result", Title: "Answer of the council",
		Description: "Wait for the answer of a session of the council that was still running, or read it again.",
		InputSchema: schema[resultArgs](wait),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)},
	}, func(ctx context.Context, r *mcp.CallToolRequest, in resultArgs) (*mcp.CallToolResult, ToolResult, error) {
		return s.await(ctx, r, in.ID, in.Wait)
	})
	mcp.AddTool(s.server, &mcp.Tool{
		Name: "council_cancel", Title: "Cancel a session of the council",
		Description: "Cancel a session of the council that runs: its calls end at once. A session that has ended " +
			"stays as it is.",
		InputSchema: schema[cancelArgs](),
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(false)},
	}, s.cancel)
	addReport(s, &mcp.Tool{
		Name: "bias_report", Title: "Bias report",
		Description: "What the reviews of many sessions reveal about the bias of the models as judges: towards long " +
			"answers, first places, their own answers, and how harsh each one is.",
		InputSchema: schema[reportArgs](categories), OutputSchema: document("Report"),
	}, "/v1/bias-report", func(r render.FullReport) []byte { return render.Text(r, true, s.o.Settings) })
	addReport(s, &mcp.Tool{
		Name:         "leaderboard",
		Title:        "Leaderboard",
		Description:  "The models ranked over many sessions of the council, by how others rated them.",
		InputSchema:  schema[reportArgs](categories),
		OutputSchema: document("Leaderboard"),
	}, "/v1/leaderboard", func(l bias.Leaderboard) []byte { return render.Leaderboard(l, s.o.Settings) })
}

// schema returns the schema of the type T. Each function in changes may change the schemas of the fields.
func schema[T any](changes ...func(fields map[string]*jsonschema.Schema)) *jsonschema.Schema {
	made, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // The type has a defect. Every start of the program would panic.
	}
	for _, change := range changes {
		change(made.Properties)
	}
	return made
}

// document returns a schema that refers to openapi.yaml. The full schema would be longer than all other text that a
// model reads about the tools.
func document(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Description: "The schema " + name + " in /openapi.yaml of the daemon."}
}

// addReport adds a tool that gets a document from the daemon. The tool returns the document as structured data and as
// text.
func addReport[T any](s *Server, tool *mcp.Tool, path string, text func(T) []byte) {
	tool.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
	s.optional[tool.Name] = true
	mcp.AddTool(s.server, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in reportArgs) (*mcp.CallToolResult, any, error) {
		query := url.Values{}
		for name, value := range map[string]*int{"days": in.Days, "sessions": in.Sessions} {
			if value != nil {
				query.Set(name, strconv.Itoa(*value))
			}
		}
		if in.Category != "" {
			query.Set("category", in.Category)
		}
		var data json.RawMessage
		if err := s.daemon.Get(ctx, path+"?"+query.Encode(), &data); err != nil {
			return nil, nil, s.explain(err)
		}
		var document T
		if err := json.Unmarshal(data, &document); err != nil {
			return nil, nil, fmt.Errorf("reading the daemon's answer: %w", err)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text(document))}}}, data, nil
	})
}

// resultOf returns the ToolResult for a session.
func resultOf(s *council.Session) ToolResult {
	r := ToolResult{
		SessionID:   s.ID,
		Status:      s.Status,
		Disputed:    disputed(s),
		Ranking:     []Ranked{},
		Degradation: append([]council.Degradation{}, s.Degradation...),
		Warnings:    append([]council.Warning{}, s.Metadata.Warnings...),
		CostUSD:     s.Metadata.Usage.CostUSD,
	}
	if s.Answer != "" {
		r.Answer = &s.Answer
		if from := s.AnswerFrom.Sentence(); from != "" {
			r.AnswerFrom = &from
		}
	}
	if first := s.Metadata.First; first != nil {
		r.First = new(first.Sentence(0))
		if !first.Convened && s.Status != council.StatusRunning {
			*r.First += fmt.Sprintf("; to ask the other members too, call convene with session_id %q", s.ID)
		}
	}
	if s.Mode == council.ModeJudge {
		r.Judgement = ranking.Judged(s)
	}
	if len(s.Stage2) > 0 && s.Task == nil && s.Status != council.StatusRunning {
		r.Agreement = &s.Metadata.Agreement.Sentence
	}
	for _, st := range s.Metadata.AggregateRankings {
		r.Ranking = append(r.Ranking, Ranked{Rank: st.FinalRank, Model: st.Model, Score: st.BordaNormalized})
	}
	if s.Status == council.StatusRunning {
		// The cost so far is left out, because it would look like the whole cost.
		r.CostUSD = nil
		r.Next = new(fmt.Sprintf("call council_result with session_id %q", s.ID))
	}
	return r
}

// toolResult returns a result as text, for models that do not read structured data. It also returns a link to the whole
// session.
func toolResult(r ToolResult) *mcp.CallToolResult {
	var text strings.Builder
	if j, ok := r.Judgement.(council.Judgement); ok {
		text.Write(render.Judgement(j))
		if r.Next != nil {
			fmt.Fprintf(&text, "%s.\n", *r.Next)
		} else {
			fmt.Fprintln(&text, render.Cost(j.Usage))
		}
		return linked(text.String(), r.SessionID)
	}
	if r.Answer != nil {
		fmt.Fprintf(&text, "%s\n\n", strings.TrimSpace(*r.Answer))
	}
	if r.AnswerFrom != nil {
		fmt.Fprintf(&text, "The answer is %s.\n", *r.AnswerFrom)
	}
	if r.First != nil {
		fmt.Fprintf(&text, "First: %s.\n", *r.First)
	}
	if r.Agreement != nil {
		fmt.Fprintf(&text, "%s\n", *r.Agreement)
	}
	writeDisputed(&text, r.Disputed)
	fmt.Fprintf(&text, "Session %s: %s.\n", r.SessionID, r.Status)
	if r.Next != nil {
		fmt.Fprintf(&text, "The council is still at work: %s.\n", *r.Next)
	}
	for _, ranked := range r.Ranking {
		if ranked.Rank == nil {
			fmt.Fprintf(&text, "Not ranked: %s\n", ranked.Model)
			continue
		}
		fmt.Fprintf(&text, "%d. %s (Borda score %.2f)\n", *ranked.Rank, ranked.Model, *ranked.Score)
	}
	for _, d := range r.Degradation {
		fmt.Fprintf(&text, "Missing: %s of %s: %s: %s\n", d.Stage, d.Model, d.Code, d.Message)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&text, "Warning: %s: %s\n", w.Code, w.Message)
	}
	if r.CostUSD != nil {
		fmt.Fprintf(&text, "Cost: %s\n", spend.FromFloat(*r.CostUSD).Dollars())
	}
	return linked(text.String(), r.SessionID)
}

// linked returns a text with a link to a whole session.
func linked(text, session string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{
		&mcp.TextContent{Text: text},
		&mcp.ResourceLink{
			URI:         sessionURI + session,
			Name:        "session " + session,
			Title:       "The whole session",
			MIMEType:    "application/json",
			Description: "Answers, reviews, ranking, audit and cost.",
		},
	}}
}

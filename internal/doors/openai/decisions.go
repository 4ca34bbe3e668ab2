package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/ranking"
)

// A decision is a session whose seats vote on the questions of a client. It has no answer, leaves no records, and is in
// no list of sessions. It stays in memory only if it failed, so that a repeated request gets the same failure, or if it
// has an Idempotency-Key.

// The limits of a DecisionRequest.
const (
	maxQuestions = 20
	minOptions   = 2
	maxChoices   = 26
	maxLevels    = 10
)

// DecisionRequest is the body of POST /v1/decisions. Other fields in a body have no effect.
type DecisionRequest struct {
	Model     string             `json:"model"`
	Input     DecisionInput      `json:"input"`
	Questions []DecisionQuestion `json:"questions"`
	Stream    bool               `json:"stream,omitempty"` // refused
}

// DecisionInput holds the items that the questions are about. If a client sends one string instead, it becomes a
// message of the user.
type DecisionInput []DecisionItem

// SetText implements httpapi.TextList.
func (i *DecisionInput) SetText(text string) {
	item := DecisionItem{Role: council.RoleUser}
	item.Content.SetText(text)
	*i = DecisionInput{item}
}

// Wanted implements httpapi.TextList.
func (i *DecisionInput) Wanted() string { return "a text, or a list of messages" }

// DecisionItem is a message, the call of a tool, or the result of such a call.
type DecisionItem struct {
	Type    string          `json:"type,omitempty"` // "message" by default
	Role    string          `json:"role,omitempty"`
	Content DecisionContent `json:"content,omitempty"`
	// The remaining fields belong to tool calls and their results.
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments string          `json:"arguments,omitempty"`
	Input     string          `json:"input,omitempty"`
	Output    DecisionContent `json:"output,omitempty"`
}

// DecisionContent holds the parts of a message, of a result or of instructions. If a client sends one string instead,
// it becomes one part.
type DecisionContent []DecisionPart

// SetText implements httpapi.TextList.
func (c *DecisionContent) SetText(text string) {
	*c = DecisionContent{{ChatPart: ChatPart{Type: "input_text", Text: text}}}
}

// Wanted implements httpapi.TextList.
func (c *DecisionContent) Wanted() string { return "a text, or a list of parts" }

// DecisionPart is a text or a JSON value.
type DecisionPart struct {
	ChatPart
	Data json.RawMessage `json:"data,omitempty"` // set if Type is inputJSON
}

const inputJSON = "input_json"

// Skim implements httpapi.Skimmer. It skips the content of parts that a council cannot read.
func (c *DecisionPart) Skim(kind, role string) bool {
	return kind != inputJSON && c.ChatPart.Skim(kind, role)
}

// text returns the text of the parts, each on a line of its own. It refuses parts that are neither text nor JSON.
func (c DecisionContent) text(p *httpapi.Problems, place func() string) string {
	texts := make([]string, len(c))
	for i, part := range c {
		read, ok := part.text()
		if part.Type == inputJSON && len(part.Data) > 0 {
			read = string(part.Data)
			ok = true
		}
		if !ok {
			unreadable(p, func() string { return fmt.Sprintf("%s[%d]", place(), i) }, part.Type,
				"send parts of type input_text or input_json")
		}
		texts[i] = read
	}
	return strings.Join(texts, "\n")
}

// transcript returns the items as one text. A message that stands alone is the text itself.
func (i DecisionInput) transcript(p *httpapi.Problems) string {
	var messages []council.Message
	tools := map[string]string{} // names, by call id
	for n, item := range i {
		field := func(name string) func() string { return func() string { return fmt.Sprintf("input[%d].%s", n, name) } }
		m := council.Message{Role: item.Role}
		switch item.Type {
		case "", itemMessage:
			if !slices.Contains([]string{council.RoleUser, council.RoleSystem, council.RoleAssistant, "developer"}, item.Role) {
				p.Add(field("role")(), fmt.Sprintf("%.64q is not a role", item.Role),
					"use user, developer, system or assistant")
			}
			m.Content = item.Content.text(p, field("content"))
		case "function_call", "custom_tool_call":
			tools[item.CallID] = item.Name
			m.Role = "call of the tool " + item.Name
			m.Content = item.Arguments + item.Input // The type says which of the two is set.
		case "function_call_output", "custom_tool_call_output":
			name, known := tools[item.CallID]
			if !known {
				p.Add(field("call_id")(), "no earlier item calls a tool with this id", "send the call before its result")
			}
			m.Role = "result of the tool " + name
			m.Content = item.Output.text(p, field("output"))
		default:
			unreadable(p, field("type"), item.Type, "send messages, and calls of tools with their results")
		}
		if strings.TrimSpace(m.Content) != "" {
			messages = append(messages, m)
		}
	}
	if messages == nil && !p.About("input") {
		p.Add("input", "there is no text", "give the text that the questions are about")
	}
	return council.Plan{Conversation: messages}.Question()
}

// DecisionQuestion is one question about the input.
type DecisionQuestion struct {
	Type         string           `json:"type"` // a council.VoteKind
	Name         *string          `json:"name,omitempty"`
	Instructions DecisionContent  `json:"instructions,omitempty"`
	Choices      []DecisionChoice `json:"choices,omitempty"`
	Levels       []DecisionLevel  `json:"levels,omitempty"`
}

// DecisionChoice is an option of a choice.
type DecisionChoice struct {
	Value       json.RawMessage `json:"value"` // a string, true or false
	Description string          `json:"description,omitempty"`
}

// DecisionLevel is a level of a score.
type DecisionLevel struct {
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// request returns the council's request. It adds a problem to p for everything in c that a council does not support.
func (c DecisionRequest) request(p *httpapi.Problems) council.Request {
	p.Rename = func(field string) string { return bodyPlace(field, "input", "", conversation{}) }
	r := requestOf(c.Model, nil)
	r.Query = c.Input.transcript(p)
	r.Questions = []council.VoteQuestion{}
	names := map[string]bool{}
	if n := len(c.Questions); (n < 1 || n > maxQuestions) && !p.About("questions") {
		p.Add("questions", fmt.Sprintf("there are %d questions", n), fmt.Sprintf("give 1 to %d", maxQuestions))
		return r
	}
	for i, q := range c.Questions {
		place := fmt.Sprintf("questions[%d]", i)
		if q.Name != nil {
			text(p, place+".name", *q.Name, names)
		}
		r.Questions = append(r.Questions, q.question(p, place))
	}
	refuse(p, []refusal{
		{c.Stream, "stream", "the votes are counted when all of them are cast", "leave stream out"},
	})
	return r
}

// question returns the question in the form of a plan. The argument place is its place in the body.
func (q DecisionQuestion) question(p *httpapi.Problems, place string) council.VoteQuestion {
	instructions := q.Instructions.text(p, func() string { return place + ".instructions" })
	kind := council.VoteKind(q.Type)
	if empty := strings.TrimSpace(instructions) == ""; empty && (q.Instructions != nil || kind == council.VotePredicate) &&
		!p.About(place+".instructions") {
		p.Add(place+".instructions", "the text is empty", "say what the seats decide")
	}
	question := council.VoteQuestion{Kind: kind, Instructions: instructions}
	switch kind {
	case council.VotePredicate:
		return council.Predicate(instructions)
	case council.VoteChoice:
		number(p, place+".choices", len(q.Choices), maxChoices)
		question.Options = q.choices(p, place)
	case council.VoteScore:
		number(p, place+".levels", len(q.Levels), maxLevels)
		labels := map[string]bool{}
		for i, level := range q.Levels {
			text(p, fmt.Sprintf("%s.levels[%d].label", place, i), level.Label, labels)
			question.Options = append(question.Options, council.VoteOption{Text: level.Label, Description: level.Description})
		}
	default:
		if !p.About(place + ".type") {
			p.Add(place+".type", fmt.Sprintf("%.64q is not a type of question", q.Type), "use predicate, choice or score")
		}
	}
	return question
}

// choices returns the options of a choice. A boolean and a string with the same text are two options.
func (q DecisionQuestion) choices(p *httpapi.Problems, place string) (options []council.VoteOption) {
	values := map[string]bool{}
	texts := map[string]bool{}
	for i, choice := range q.Choices {
		field := fmt.Sprintf("%s.choices[%d].value", place, i)
		var value any
		_ = json.Unmarshal(choice.Value, &value) // If the value is missing, it stays nil.
		option := council.VoteOption{Description: choice.Description}
		switch v := value.(type) {
		case string:
			option.Text = v
			text(p, field, v, texts)
		case bool:
			option.Text = strconv.FormatBool(v)
			text(p, field, option.Text, values)
		default:
			p.Add(field, "the value is neither a text nor a boolean", "give a text, true or false")
		}
		options = append(options, option)
	}
	for i, choice := range q.Choices {
		if texts[options[i].Text] && choice.isBoolean() {
			options[i].Text += " (boolean)" // There is also a string with this text.
		}
	}
	return options
}

func (c DecisionChoice) isBoolean() bool {
	return string(c.Value) == "true" || string(c.Value) == "false"
}

// text adds a problem for a text that is empty or that the map before already has. It adds the text to the map.
func text(p *httpapi.Problems, place, text string, before map[string]bool) {
	switch {
	case strings.TrimSpace(text) == "" && !p.About(place):
		p.Add(place, "the text is empty", "give a text")
	case before[text]:
		p.Add(place, fmt.Sprintf("%.64q is given twice", text), "give each once")
	}
	before[text] = true
}

// number adds a problem for a question with too few or too many options.
func number(p *httpapi.Problems, place string, n, most int) {
	if (n < minOptions || n > most) && !p.About(place) {
		p.Add(place, fmt.Sprintf("there are %d", n), fmt.Sprintf("give %d to %d", minOptions, most))
	}
}

// Decision is the answer to POST /v1/decisions, in OpenAI's form.
type Decision struct {
	Model   string           `json:"model"` // the model of the request
	Answers []DecisionAnswer `json:"answers"`
	Usage   DecisionUsage    `json:"usage"`
	Council DecisionCouncil  `json:"council"`
}

// DecisionAnswer is the answer to one question. Each type of answer uses some of the fields.
type DecisionAnswer struct {
	Type          string                `json:"type"` // the type of the question, or "refusal"
	Name          *string               `json:"name"`
	Probability   *float64              `json:"probability,omitempty"` // of a predicate: that the statement is true
	Choice        json.RawMessage       `json:"choice,omitempty"`      // the value of a choice
	Score         *float64              `json:"score,omitempty"`       // the mean level, by index
	Confidence    *float64              `json:"confidence,omitempty"`
	Probabilities []DecisionProbability `json:"probabilities,omitempty"`
	Council       DecisionVotes         `json:"council"`
}

// DecisionProbability is the probability of one option.
type DecisionProbability struct {
	Value       json.RawMessage `json:"value"`           // the value of a choice, or the index of a level
	Label       *string         `json:"label,omitempty"` // of a level
	Probability float64         `json:"probability"`
}

// DecisionVotes says how the seats voted on one question.
type DecisionVotes struct {
	Asked int `json:"asked"` // seats
	council.VoteCount
	// Calibrated says that the probabilities were corrected with labels. It is always false.
	Calibrated bool `json:"calibrated"`
}

// DecisionUsage is what a decision consumed. A number is null if it is not known.
type DecisionUsage struct {
	InputTokens        *int64                `json:"input_tokens"`
	InputTokensDetails DecisionInputDetails  `json:"input_tokens_details"`
	OutputTokens       *int64                `json:"output_tokens"`
	OutputDetails      DecisionOutputDetails `json:"output_tokens_details"`
	TotalTokens        *int64                `json:"total_tokens"`
}

// DecisionInputDetails has the input tokens that providers had in a cache, if they report them.
type DecisionInputDetails struct {
	CachedTokens     int64 `json:"cached_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"` // always 0, because sessions do not add them up
}

// DecisionOutputDetails has the thinking of the models, as far as they report it.
type DecisionOutputDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

// DecisionCouncil holds the figures that OpenAI's form has no place for.
type DecisionCouncil struct {
	CostUSD  *float64              `json:"cost_usd"` // in US dollars, null if it is not known
	Failed   []council.Degradation `json:"failed"`   // the seats without votes
	Warnings []council.Warning     `json:"warnings"`
}

// decide is POST /v1/decisions. It has seats vote on the questions, and answers with the shares of votes.
func (d door) decide(w http.ResponseWriter, r *http.Request) error {
	var c DecisionRequest
	s, err := d.api.Begin(w, r, &c, func(p *httpapi.Problems) (council.Submission, error) {
		return council.Submission{Request: c.request(p)}, knownModel(c.Model)
	})
	if err != nil {
		return err
	}
	c.Input = nil // The session holds the text.
	session, err := httpapi.Wait(r, s)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, c.decision(session))
}

// decision returns the answers to the questions from the votes of a session.
func (c DecisionRequest) decision(s *council.Session) Decision {
	usage := s.Metadata.Usage.Total
	answer := Decision{
		Model: c.Model,
		Usage: DecisionUsage{InputTokens: usage.InputTokens, OutputTokens: usage.OutputTokens},
		Council: DecisionCouncil{
			CostUSD: s.Metadata.Usage.CostUSD, Failed: s.Degradation, Warnings: s.Metadata.Warnings,
		},
	}
	if usage.InputTokens != nil && usage.OutputTokens != nil {
		answer.Usage.TotalTokens = new(usage.Tokens())
	}
	if usage.CachedInputTokens != nil {
		answer.Usage.InputTokensDetails.CachedTokens = *usage.CachedInputTokens
	}
	if usage.ReasoningTokens != nil {
		answer.Usage.OutputDetails.ReasoningTokens = *usage.ReasoningTokens
	}
	for i, q := range c.Questions {
		answer.Answers = append(answer.Answers, q.answer(s.Votes[i]))
	}
	return answer
}

// answer returns the answer to a question from its votes.
func (q DecisionQuestion) answer(count council.VoteCount) DecisionAnswer {
	result := ranking.SharesOf(count)
	a := DecisionAnswer{Type: q.Type, Name: q.Name, Council: DecisionVotes{Asked: result.Asked, VoteCount: count}}
	switch kind := council.VoteKind(q.Type); {
	case result.Refused:
		a.Type = "refusal"
	case kind == council.VotePredicate:
		a.Probability = &result.Probabilities[1]
	case kind == council.VoteChoice:
		a.Choice = q.Choices[result.Best].Value
		a.Confidence = &result.Confidence
		for i, p := range result.Probabilities {
			a.Probabilities = append(a.Probabilities, DecisionProbability{Value: q.Choices[i].Value, Probability: p})
		}
	default:
		a.Score = &result.Score
		a.Confidence = &result.Confidence
		for i, p := range result.Probabilities {
			a.Probabilities = append(a.Probabilities, DecisionProbability{
				Value: json.RawMessage(strconv.Itoa(i)), Label: &q.Levels[i].Label, Probability: p,
			})
		}
	}
	return a
}

package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/sessions"
)

// A response is a view of a session. The session is all that is stored, and its plan has what the response repeats of
// its request. That is why a client can read every session of its token as a response.

// echo is what a response repeats of its request. It is the council.Door of the session.
type echo struct {
	Model        string            `json:"model"`
	Instructions string            `json:"instructions,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Text         *ResponseText     `json:"text,omitempty"`
	Previous     string            `json:"previous_response_id,omitempty"`
	Forget       bool              `json:"forget,omitempty"` // "store" was false
	Ignored      []string          `json:"ignored,omitempty"`
}

func (e echo) encode() council.Door {
	door, err := json.Marshal(e)
	if err != nil { // The schema of the output was valid JSON when it was read.
		panic(err)
	}
	return door
}

// view shows a session as a response.
type view struct {
	echo
	s *sessions.Session
	// forget deletes the session. It is nil if the client did not begin the session with this request.
	forget func() error
	forgot bool // the session was deleted
}

// viewOf returns the view of a session. If the session did not begin as a response, the view has the model with which a
// client would ask the same council.
func viewOf(s *sessions.Session) *view {
	v := &view{s: s}
	_ = json.Unmarshal(s.Door(), &v.echo) // If it is empty, all fields stay empty.
	if v.Model == "" {
		v.Model = councilModel
		r := s.Request()
		if name := cmp.Or(r.Council, strings.Join(r.Models, ",")); name != "" {
			v.Model += "/" + name
		}
	}
	return v
}

// find returns the caller's response with this id, or nil if there is none.
func (d door) find(r *http.Request, id string) (*view, error) {
	session, ok := strings.CutPrefix(id, "resp_")
	if !ok {
		return nil, nil
	}
	s, err := d.api.Find(r, session)
	if s == nil || err != nil {
		return nil, err
	}
	return viewOf(s), nil
}

// named returns the response whose id is in the path.
func (d door) named(r *http.Request) (*view, error) {
	id := r.PathValue("id")
	v, err := d.find(r, id)
	if v == nil && err == nil {
		err = &council.Error{
			Code:   council.CodeNotFound,
			Detail: fmt.Sprintf("there is no response %.64q of this token", id),
		}
	}
	return v, err
}

// runs reports whether the session runs, here or on another node.
func (v *view) runs() bool { return v.s.Summary().Status == council.StatusRunning }

// stored reports whether the client can fetch the response, now or when it has ended.
func (v *view) stored() bool { return v.s.Found() && !v.forgot && !v.forgets() }

// forgets reports whether the session is deleted once it is answered. With an Idempotency-Key it stays, because the
// client can then send its request again.
func (v *view) forgets() bool { return v.Forget && !v.s.Background() }

// forgetNow deletes a session that has ended if its request asked for that. If the session cannot be deleted, the
// response says that it is stored.
func (v *view) forgetNow() {
	if v.forget != nil && v.forgets() {
		v.forgot = v.forget() == nil
		v.Forget = false
	}
}

// conversation returns the messages of the request, without its instructions.
func (v *view) conversation() []council.Message {
	r := v.s.Request()
	if r.Messages == nil {
		return []council.Message{{Role: council.RoleUser, Content: r.Query}}
	}
	if v.Instructions != "" {
		return r.Messages[1:]
	}
	return r.Messages
}

// now returns the response as it is now.
func (v *view) now() Response {
	if v.runs() {
		return v.response(responseRuns)
	}
	session, failure := v.s.Result()
	if failure != nil {
		return v.failed(failure)
	}
	return v.ended(session)
}

// response returns a response with the given status. The response has no answer yet.
func (v *view) response(status string) Response {
	r := Response{
		ID:         "resp_" + v.s.ID,
		Object:     "response",
		CreatedAt:  v.s.Created.Unix(),
		Status:     status,
		Model:      v.Model,
		Output:     []ResponseMessage{},
		Store:      v.stored(),
		Background: v.s.Background(),
		Text:       ResponseText{TextFormat{Type: formatText}},
		Metadata:   map[string]string{},
		Unused: Unused{
			Temperature: 1, TopP: 1, Truncation: "disabled", ServiceTier: "default", ToolChoice: "auto", Tools: []string{},
		},
	}
	if v.Text != nil && v.Text.Format.Type != "" {
		r.Text = *v.Text
	}
	if v.Instructions != "" {
		r.Instructions = &v.Instructions
	}
	if v.Previous != "" {
		r.PreviousResponseID = &v.Previous
	}
	if v.Metadata != nil {
		r.Metadata = v.Metadata
	}
	return r
}

// ended returns the response for a session that has ended with an answer.
func (v *view) ended(session *council.Session) Response {
	r := v.response(responseCompleted)
	if *chatFinish(session) == "length" {
		r.Status = responseIncomplete
		r.IncompleteDetails = &ResponseIncompletion{Reason: "max_output_tokens"}
	} else {
		took := time.Duration(session.Metadata.Timing.TotalMS * float64(time.Millisecond))
		r.CompletedAt = new(v.s.Created.Add(took).Unix())
	}
	r.Output = append(r.Output, responseMessage(v.s, r.Status, responsePart(session.Answer+noteLine(session))))
	r.Council = chatCouncil(session)
	r.Council.Ignored = v.Ignored
	if u := chatUsage(session); u != nil {
		r.Usage = &ResponseUsage{
			InputTokens:  u.PromptTokens,
			OutputTokens: u.CompletionTokens,
			TotalTokens:  u.TotalTokens,
			Cost:         u.Cost,
			Partial:      u.Partial,
		}
		if n := session.Metadata.Usage.Total.CachedInputTokens; n != nil {
			r.Usage.InputTokensDetails.CachedTokens = *n
		}
		if n := session.Metadata.Usage.Total.ReasoningTokens; n != nil {
			r.Usage.OutputDetails.ReasoningTokens = *n
		}
	}
	return r
}

// failed returns the response for a session that has no answer.
func (v *view) failed(e *council.Error) Response {
	r := v.response(responseFailed)
	if e.Code == council.CodeCancelled {
		r.Status = responseCancelled
	}
	r.Error = &ResponseError{Code: e.Code, Message: httpapi.OpenAIError(e).Error.Message}
	return r
}

// retrieve is GET /v1/responses/{id}. With the parameter stream, it sends the events of the response.
func (d door) retrieve(w http.ResponseWriter, r *http.Request) error {
	v, err := d.named(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if stream, err := strconv.ParseBool(cmp.Or(q.Get("stream"), "false")); err != nil {
		return wrongParameter("stream", "the value is neither true nor false", "give one of them")
	} else if !stream {
		return httpapi.WriteJSON(w, http.StatusOK, v.now())
	}
	t := newResponseStream(v)
	if after := q.Get("starting_after"); after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 {
			return wrongParameter("starting_after", "the value is not the number of an event",
				"give the sequence_number of the last event that arrived")
		}
		t = newResponseStreamAfter(v, n)
	}
	t.watches = true
	d.streamText(w, r, t)
	return nil
}

func wrongParameter(name, message, fix string) error {
	return &council.Error{
		Code: council.CodeInvalid, Detail: "the request is not valid",
		Fields: []council.FieldError{{Field: name, Message: message, Fix: fix}},
	}
}

// cancelWait is how long a request to cancel a response waits for the end of the session. Another node may run it.
const cancelWait = 10 * time.Second

// cancel is POST /v1/responses/{id}/cancel.
func (d door) cancel(w http.ResponseWriter, r *http.Request) error {
	v, err := d.named(r)
	if err != nil {
		return err
	}
	if v.runs() {
		if !v.s.Background() {
			return &council.Error{
				Code: council.CodeInvalid, SessionID: v.s.ID,
				Detail: "the response is not in the background: it ends when the client that asked for it leaves",
			}
		}
		if err := d.api.Stop(r, v.s); err != nil {
			return err
		}
		select {
		case <-v.s.Done():
		case <-time.After(cancelWait):
		case <-r.Context().Done():
		}
	}
	return httpapi.WriteJSON(w, http.StatusOK, v.now())
}

// ResponseDeletion is the answer to DELETE /v1/responses/{id}.
type ResponseDeletion struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "response"
	Deleted bool   `json:"deleted"`
}

// remove is DELETE /v1/responses/{id}.
func (d door) remove(w http.ResponseWriter, r *http.Request) error {
	v, err := d.named(r)
	if err != nil {
		return err
	}
	if v.runs() {
		return &council.Error{
			Code: council.CodeInvalid, SessionID: v.s.ID,
			Detail: "the response is in progress: cancel it first, or wait for its end",
		}
	}
	if err := d.api.Delete(r, v.s); err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, ResponseDeletion{ID: "resp_" + v.s.ID, Object: "response", Deleted: true})
}

// ResponseItems is the answer to GET /v1/responses/{id}/input_items.
type ResponseItems struct {
	Object  string              `json:"object"` // "list"
	Data    []ResponseInputItem `json:"data"`
	FirstID *string             `json:"first_id"` // the id of the first item in Data, or null if there is none
	LastID  *string             `json:"last_id"`
	HasMore bool                `json:"has_more"`
}

// ResponseInputItem is a message of the conversation that a response answers.
type ResponseInputItem struct {
	ID      string              `json:"id"`     // "msg_", the id of the session, "_" and the index of the message
	Type    string              `json:"type"`   // "message"
	Status  string              `json:"status"` // "completed"
	Role    string              `json:"role"`
	Content []ResponseInputPart `json:"content"` // one part
}

// ResponseInputPart is the text of a ResponseInputItem.
type ResponseInputPart struct {
	Type        string   `json:"type"` // "input_text", or "output_text" if an assistant wrote it
	Text        string   `json:"text"`
	Annotations []string `json:"annotations,omitzero"` // empty for "output_text", and otherwise left out
}

// A list of input items has maxItems items at most, and otherItems if the client gives no limit.
const (
	maxItems   = 100
	otherItems = 20
)

// inputItems is GET /v1/responses/{id}/input_items.
func (d door) inputItems(w http.ResponseWriter, r *http.Request) error {
	v, err := d.named(r)
	if err != nil {
		return err
	}
	list, err := v.items(r.URL.Query())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, list)
}

// items returns a page of the conversation. The parameters are those of the route.
func (v *view) items(q url.Values) (ResponseItems, error) {
	list := ResponseItems{Object: "list", Data: []ResponseInputItem{}}
	limit := otherItems
	if value := q.Get("limit"); value != "" {
		var err error
		if limit, err = strconv.Atoi(value); err != nil || limit < 1 || limit > maxItems {
			return list, wrongParameter("limit", "the value is not a number of items", "give 1 to 100")
		}
	}
	all := make([]ResponseInputItem, 0)
	for i, m := range v.conversation() {
		part := ResponseInputPart{Type: "input_text", Text: m.Content}
		if m.Role == council.RoleAssistant {
			part.Type = "output_text"
			part.Annotations = []string{}
		}
		all = append(all, ResponseInputItem{
			ID: fmt.Sprintf("msg_%s_%d", v.s.ID, i), Type: itemMessage, Status: responseCompleted, Role: m.Role,
			Content: []ResponseInputPart{part},
		})
	}
	switch q.Get("order") {
	case "", "desc":
		slices.Reverse(all)
	case "asc":
	default:
		return list, wrongParameter("order", "there is no such order", "give asc or desc")
	}
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(all, func(item ResponseInputItem) bool { return item.ID == after })
		if i < 0 {
			return list, wrongParameter("after", "the response has no such item", "give the last_id of the list before")
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		list.HasMore = true
		all = all[:limit]
	}
	if len(all) > 0 {
		list.Data = all
		list.FirstID = &all[0].ID
		list.LastID = &all[len(all)-1].ID
	}
	return list, nil
}

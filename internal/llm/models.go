package llm

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// ListedModel is a model as its provider lists it.
type ListedModel struct {
	// ID and Aliases come from the provider, and may hold any character.
	ID      string
	Aliases []string
	// Ends is the day on which the provider shuts the model down. It is zero if the list names no day.
	Ends time.Time
}

// ModelList is the list of a provider's models.
type ModelList struct {
	Models  []ListedModel // in the provider's order
	Partial bool          // the provider has more, on further pages
}

// Find returns the model that has the id as its ID or as one of its Aliases. For an alias, Ends is zero, because an
// alias does not end together with its model: the provider then uses the alias for another model.
func (l ModelList) Find(id string) (ListedModel, bool) {
	if i := slices.IndexFunc(l.Models, func(m ListedModel) bool { return m.ID == id }); i >= 0 {
		return l.Models[i], true
	}
	isAlias := slices.ContainsFunc(l.Models, func(m ListedModel) bool { return slices.Contains(m.Aliases, id) })
	return ListedModel{ID: id}, isAlias
}

// Models returns the list of a provider's models. It sends one request, which calls no model and costs nothing. The
// error is a *council.Failure. HTTP status 404 means that the base URL has no such list. FailBadResponse means that
// something other than an OpenAI-compatible provider answers.
func (c *Client) Models(ctx context.Context, name string) (ModelList, error) {
	body, err := c.ListModels(ctx, name)
	if err != nil {
		return ModelList{}, err
	}
	return ReadModels(body)
}

// ListModels sends the same request as Models, but returns the body of the reply as it is.
func (c *Client) ListModels(ctx context.Context, name string) ([]byte, error) {
	return c.get(ctx, name, "/models")
}

// Key describes the key with which a provider is called.
type Key struct {
	// Left is how much the key may still spend, in US dollars. It is nil if the key has no limit.
	Left *float64
	// Manages says that the key manages other keys, and may not call models.
	Manages bool
}

// ErrNoKeyTest says that a provider has no address at which a key can be tested.
var ErrNoKeyTest = errors.New("the provider has no address at which a key can be tested")

// TestKey asks a provider whether it knows the key. It sends one request to /key below the base URL, the address that
// OpenRouter has for this purpose. The request costs nothing. If the provider answers 401, the error is a
// *council.Failure. After any other failure, or a reply that does not describe a key, the error is ErrNoKeyTest,
// because the provider may have no such address.
func (c *Client) TestKey(ctx context.Context, name string) (Key, error) {
	body, err := c.get(ctx, name, "/key")
	if err != nil {
		if f := council.AsFailure(err); f.HTTPStatus == nil || *f.HTTPStatus != http.StatusUnauthorized {
			return Key{}, ErrNoKeyTest
		}
		return Key{}, err
	}
	var reply struct {
		Data map[string]any `json:"data"`
	}
	isMember := func(name string) bool { _, ok := reply.Data[name]; return ok }
	if json.Unmarshal(body, &reply) != nil || !slices.ContainsFunc([]string{"label", "usage", "limit", "limit_remaining"}, isMember) {
		return Key{}, ErrNoKeyTest
	}
	key := Key{Manages: reply.Data["is_management_key"] == true || reply.Data["is_provisioning_key"] == true}
	if left, ok := reply.Data["limit_remaining"].(float64); ok {
		key.Left = &left
	}
	return key, nil
}

// get sends a GET request to a path below the base URL of a provider, and returns the body of the reply.
func (c *Client) get(ctx context.Context, name, path string) ([]byte, error) {
	p := c.providers[name]
	if p == nil {
		return nil, &council.Failure{Code: council.FailUnknownProvider, Message: "there is no provider with this name"}
	}
	defer c.ended()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	timer := time.AfterFunc(c.attemptTimeout, func() { cut(errAttemptTimeout) })
	defer timer.Stop()
	x := &exchange{cut: cut, address: p.address, hint: p.hint}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, exchangeKey{}, x), http.MethodGet, p.BaseURL+path, http.NoBody)
	if err != nil {
		return nil, &council.Failure{
			Code:    council.FailRejected,
			Message: "the request could not be made: " + err.Error(),
		}
	}
	req.Header.Set("Accept", "application/json")
	if p.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+p.APIKey)
	}
	resp, err := p.http.Do(req)
	if err == nil {
		_ = resp.Body.Close() // The transport has already read the body into x.body.
	}
	failure := judge(ctx, x, received{chosen: true, text: "ok"}, err)
	if failure != nil {
		failure.Message = redact(failure.Message, p.secrets()...)
		return nil, failure
	}
	return x.body, nil
}

// modelCard is a model in the list that a provider sends.
type modelCard struct {
	ID string `json:"id"`
	// Mistral sends a list of aliases, and OpenRouter a longer name.
	Aliases any `json:"aliases"`
	Slug    any `json:"canonical_slug"`
	// OpenAI and OpenRouter send a day, Mistral a time. Azure sends an object with Unix seconds.
	Shutdown    any `json:"shutdown_date"`
	Expiration  any `json:"expiration_date"`
	Deprecation any `json:"deprecation"`
}

func (c modelCard) model() ListedModel {
	m := ListedModel{ID: c.ID}
	for _, ends := range []any{c.Shutdown, c.Expiration, c.Deprecation} {
		if m.Ends.IsZero() {
			m.Ends = readDay(ends)
		}
	}
	aliases, _ := c.Aliases.([]any)
	for _, alias := range append(aliases, c.Slug) {
		if alias, ok := alias.(string); ok && alias != m.ID {
			m.Aliases = append(m.Aliases, alias)
		}
	}
	return m
}

// ReadModels reads {"data": [{"id": ...}]}, or only the list, which some providers send. If data is null, the list
// is empty: Ollama says in this way that it has no models. The error is a *council.Failure.
func ReadModels(body []byte) (ModelList, error) {
	var list struct {
		Object any             `json:"object"`
		Data   json.RawMessage `json:"data"`
		// These are signs of further pages, from Anthropic, Google and OpenRouter.
		HasMore   any `json:"has_more"`
		NextToken any `json:"next_page_token"`
		Links     any `json:"links"`
	}
	noList := &council.Failure{Code: council.FailBadResponse, Message: "the reply is not a list of models"}
	var cards []modelCard
	switch err := json.Unmarshal(body, &list); {
	case err != nil && json.Unmarshal(body, &cards) == nil && cards != nil:
	case err != nil:
		return ModelList{}, noList
	case list.Data == nil && list.Object != "list":
		return ModelList{}, noList
	case list.Data != nil && json.Unmarshal(list.Data, &cards) != nil:
		return ModelList{}, noList
	}
	links, _ := list.Links.(map[string]any)
	token, _ := list.NextToken.(string)
	next, _ := links["next"].(string)
	read := ModelList{
		Models:  make([]ListedModel, 0, len(cards)),
		Partial: list.HasMore == true || token != "" || next != "",
	}
	for _, c := range cards {
		if c.ID != "" {
			read.Models = append(read.Models, c.model())
		}
	}
	return read, nil
}

// readDay reads a day from a date, from a time, or from Unix seconds or milliseconds. From an object it reads the
// member inference. For any other value it returns the zero time.
func readDay(v any) time.Time {
	var at time.Time
	switch v := v.(type) {
	case map[string]any:
		return readDay(v["inference"])
	case float64:
		// This number and all larger ones count as milliseconds. In milliseconds it is a day in 1973, and in seconds a
		// day in 5138.
		const milliseconds = 1e11
		if v >= milliseconds {
			v /= 1000
		}
		if v > 0 && v < milliseconds {
			at = time.Unix(int64(v), 0).UTC()
		}
	case string:
		v = strings.TrimSpace(v)
		if seconds, err := strconv.ParseFloat(v, 64); err == nil {
			return readDay(seconds)
		}
		if len(v) >= len(time.DateOnly) {
			at, _ = time.Parse(time.DateOnly, v[:len(time.DateOnly)])
		}
	}
	return at.Truncate(24 * time.Hour)
}

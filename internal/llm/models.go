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
	// ID and Aliases are the provider's own words, and may hold any character.
	ID      string
	Aliases []string
	// Ends is the day on which the provider shuts the model down; zero where the list does not say it.
	Ends time.Time
}

// ModelList is what a provider lists.
type ModelList struct {
	Models  []ListedModel // in the provider's order
	Partial bool          // there are more, which the provider would tell on further pages
}

// Find returns the model of an id. An alias has no end: its provider lets it stand for another model then.
func (l ModelList) Find(id string) (ListedModel, bool) {
	if i := slices.IndexFunc(l.Models, func(m ListedModel) bool { return m.ID == id }); i >= 0 {
		return l.Models[i], true
	}
	isAlias := slices.ContainsFunc(l.Models, func(m ListedModel) bool { return slices.Contains(m.Aliases, id) })
	return ListedModel{ID: id}, isAlias
}

// Models returns the models that a provider lists. It sends one request, which asks no model and costs nothing. The error
// is a *council.Failure: HTTP status 404 means that there is no such list at the base URL, and FailBadResponse that
// something else than an OpenAI-compatible provider answers there.
func (c *Client) Models(ctx context.Context, name string) (ModelList, error) {
	body, err := c.ListModels(ctx, name)
	if err != nil {
		return ModelList{}, err
	}
	return ReadModels(body)
}

// ListModels is Models with the list as the provider sends it, whatever it is.
func (c *Client) ListModels(ctx context.Context, name string) ([]byte, error) {
	return c.get(ctx, name, "/models")
}

// Key is what a provider says of the key that it is asked with.
type Key struct {
	// Left is what the key may still spend, in US dollars; nil: it has no limit.
	Left *float64
	// Manages says that the key manages other keys, and may call no model.
	Manages bool
}

// ErrNoKeyTest says that a provider has no address at which a key can be tested.
var ErrNoKeyTest = errors.New("the provider has no address at which a key can be tested")

// TestKey asks a provider whether it knows the key. The address is that of OpenRouter, /key below the base URL, and costs
// nothing. The error is ErrNoKeyTest where something else answers there, or nothing, and else a *council.Failure.
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

// get returns what a provider has at a path below its base URL.
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
		_ = resp.Body.Close() // it was read to its end
	}
	failure := judge(ctx, x, received{chosen: true, text: "ok"}, err)
	if failure != nil {
		failure.Message = redact(failure.Message, p.secrets()...)
		return nil, failure
	}
	return x.body, nil
}

// modelCard is a model of a list, as its provider sends it.
type modelCard struct {
	ID string `json:"id"`
	// Mistral has a list of aliases, and OpenRouter a longer name.
	Aliases any `json:"aliases"`
	Slug    any `json:"canonical_slug"`
	// OpenAI and OpenRouter name a day, Mistral a time. Azure has an object with Unix seconds.
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

// ReadModels reads {"data": [{"id": ...}]}, or the list alone, which some providers send. No data are an empty list: so does
// Ollama say that it has no models. Its error is a *council.Failure.
func ReadModels(body []byte) (ModelList, error) {
	var list struct {
		Object any             `json:"object"`
		Data   json.RawMessage `json:"data"`
		// Signs of further pages: Anthropic's, Google's and OpenRouter's.
		HasMore   any `json:"has_more"`
		NextToken any `json:"next_page_token"`
		Links     any `json:"links"`
	}
	noList := &council.Failure{Code: council.FailBadResponse, Message: "the reply is no list of models"}
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

// readDay reads a day, written as a date, as a time or in Unix seconds or milliseconds. It is zero where there is none.
func readDay(v any) time.Time {
	var at time.Time
	switch v := v.(type) {
	case map[string]any:
		return readDay(v["inference"])
	case float64:
		const milliseconds = 1e11 // seconds reach this in the year 5138, milliseconds did in 1973
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

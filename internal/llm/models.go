package llm

import (
	"context"
	"encoding/json"
	"time"

	"github.com/councild/councild/internal/council"
)

// Models returns the ids of the models that a provider lists, in its order. It sends one
// request, which asks no model and costs nothing. The error is a *council.Failure: HTTP
// status 404 means that there is no such list at the base URL, and FailBadResponse that something
// else than an OpenAI-compatible provider answers there. The ids are the provider's own
// words, and may hold any character.
func (c *Client) Models(ctx context.Context, name string) ([]string, error) {
	body, err := c.ModelList(ctx, name)
	if err != nil {
		return nil, err
	}
	ids, failure := readModels(body)
	if failure != nil {
		return nil, failure
	}
	return ids, nil
}

// ModelList is Models with the list as the provider sends it, whatever it is.
func (c *Client) ModelList(ctx context.Context, name string) ([]byte, error) {
	p := c.providers[name]
	if p == nil {
		return nil, &council.Failure{Code: council.FailUnknownProvider, Message: "there is no provider with this name"}
	}
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	timer := time.AfterFunc(c.attemptTimeout, func() { cut(errAttemptTimeout) })
	defer timer.Stop()
	x := &exchange{cut: cut, address: p.address, hint: p.hint}
	_, err := p.api.ListModels(context.WithValue(ctx, exchangeKey{}, x))
	failure := judge(ctx, x, received{chosen: true, text: "ok"}, err)
	if failure != nil {
		failure.Message = redact(failure.Message, p.secrets()...)
		return nil, failure
	}
	return x.body, nil
}

// readModels reads {"data": [{"id": ...}]}, or the list alone, which some providers send.
func readModels(body []byte) ([]string, *council.Failure) {
	type card struct {
		ID string `json:"id"`
	}
	var list struct {
		Data *[]card `json:"data"`
	}
	var cards []card
	if json.Unmarshal(body, &list) == nil && list.Data != nil {
		cards = *list.Data
	} else if json.Unmarshal(body, &cards) != nil || cards == nil {
		return nil, &council.Failure{Code: council.FailBadResponse, Message: "the reply is no list of models"}
	}
	ids := make([]string, 0, len(cards))
	for _, c := range cards {
		if c.ID != "" {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

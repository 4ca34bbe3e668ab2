// Package openai implements OpenAI's interface: chat completions, Responses, decisions and the list of models. It turns
// the requests of OpenAI's clients into sessions, and sends sessions in the form that these clients read. Package
// httpapi handles tokens and limits, decodes bodies and starts sessions.
//
// # Decisions
//
// A chat completion is a session like any other. This package builds the completion from the events and the result of
// the session. If the chairman fails in the middle of its answer, the stream ends with an error, because text that was
// streamed cannot be taken back. The session continues until it has a whole answer.
//
// A response is a view of a session, and nothing else is stored (view.go). A client that comes back to the stream of a
// response never gets a text made of two drafts (response_stream.go).
//
// Old history never ends a chat, because a client sends earlier turns again and cannot change them. A request is
// refused only if the user's last message, or a foreign item after it, is something that a council cannot read. In
// earlier messages history.go leaves out such parts or replaces them with a name, and adds a warning.
package openai

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
)

// door answers the requests of the interface.
type door struct {
	api     *httpapi.API
	started time.Time // shown as the creation time of all models
}

// Routes returns the routes of the interface. The caller passes them to api.Mount.
func Routes(api *httpapi.API) []httpapi.Route {
	d := door{api: api, started: time.Now()}
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: "/v1/models", Handle: d.models},
		{Method: http.MethodGet, Pattern: "/v1/models/*", Handle: d.model}, // an id may hold slashes
		{Method: http.MethodPost, Pattern: "/v1/chat/completions", Asks: true, Handle: d.chat},
		{Method: http.MethodPost, Pattern: "/v1/responses", Asks: true, Handle: d.respond},
		{Method: http.MethodGet, Pattern: "/v1/responses/{id}", Handle: d.retrieve},
		{Method: http.MethodDelete, Pattern: "/v1/responses/{id}", Handle: d.remove},
		{Method: http.MethodPost, Pattern: "/v1/responses/{id}/cancel", Handle: d.cancel},
		{Method: http.MethodGet, Pattern: "/v1/responses/{id}/input_items", Handle: d.inputItems},
		{Method: http.MethodPost, Pattern: "/v1/decisions", Asks: true, Handle: d.decide},
	}
}

// councilModel is the model name of the default council. Other model names begin with councilModel and a slash:
//   - council/a,b is a council of the members a and b.
//   - council/a is the model a alone, without reviews.
//   - council/name is the council with this name in the roster, in its mode.
//
// The field metadata.mode overrides the mode.
const councilModel = "council"

// ModelList is the body of GET /v1/models.
type ModelList struct {
	Object string      `json:"object"` // "list"
	Data   []ModelCard `json:"data"`
}

// ModelCard is a model that a client can ask for.
type ModelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`  // "model"
	Created int64  `json:"created"` // when this daemon started, in Unix seconds
	OwnedBy string `json:"owned_by"`
}

// models is GET /v1/models. It lists the councils and each single member of the default council.
func (d door) models(w http.ResponseWriter, r *http.Request) error {
	cards, err := d.cards(r)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, ModelList{Object: "list", Data: cards})
}

// model is GET /v1/models/{id}.
func (d door) model(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("*")
	if plain, err := url.PathUnescape(id); err == nil && r.URL.RawPath != "" { // chi has matched the escaped path
		id = plain
	}
	cards, err := d.cards(r)
	if err != nil {
		return err
	}
	for _, card := range cards {
		if card.ID == id {
			return httpapi.WriteJSON(w, http.StatusOK, card)
		}
	}
	return noModel(id)
}

// cards returns the models that the caller can ask for by name: the default council first, then the councils of the
// roster, then the members of the default council.
func (d door) cards(r *http.Request) ([]ModelCard, error) {
	offers, err := d.api.Offers(r)
	if err != nil {
		return nil, err
	}
	var ids []string
	if len(offers) > 0 && offers[0].Default {
		ids = append(ids, councilModel)
	}
	for _, offer := range offers {
		if offer.Plan.CouncilName != "" {
			ids = append(ids, councilModel+"/"+offer.Plan.CouncilName)
		}
	}
	for _, offer := range offers {
		if !offer.Default {
			continue
		}
		for _, m := range offer.Plan.Members() {
			if id := councilModel + "/" + council.ModelOf(m.ID); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	cards := make([]ModelCard, len(ids))
	for i, id := range ids {
		cards[i].ID = id
	}
	for i := range cards {
		cards[i].Object = "model"
		cards[i].Created = d.started.Unix()
		cards[i].OwnedBy = "councild"
	}
	return cards, nil
}

// knownModel returns an error if a model name is not the name of a council. The pipeline checks later whether the
// members exist.
func knownModel(name string) error {
	if name == councilModel || strings.HasPrefix(name, councilModel+"/") {
		return nil
	}
	return noModel(name)
}

func noModel(name string) error {
	return &council.Error{
		Code:   council.CodeNotFound,
		Detail: fmt.Sprintf("the model %q does not exist; GET /v1/models lists those that do", name),
		Fields: []council.FieldError{{
			Field:   "model",
			Message: "there is no such model",
			Fix:     "use council, council/MEMBER, or council/MEMBER,MEMBER",
		}},
	}
}

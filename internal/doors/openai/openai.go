// Package openai is OpenAI's interface: chat completions, Responses and the list of models. It reads what OpenAI's clients send, and
// shows a session in the form that they read. It leaves tokens, limits, strict reading and beginning a session to package httpapi.
//
// # Decisions
//
// A chat completion is a session like any other, made from its events and its result. What was streamed cannot be
// taken back: a chairman that is lost in the middle of its answer ends the stream with an error, and the session goes
// on to the whole answer.
//
// Old history never ends a chat. A client sends earlier turns again and cannot take them back. Only the last message
// of the user is refused for what it holds; history.go leaves the rest out or names it, with a warning.
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
	started time.Time // when the models are said to be made
}

// Routes returns the routes of the interface, for api to mount.
func Routes(api *httpapi.API) []httpapi.Route {
	d := door{api: api, started: time.Now()}
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: "/v1/models", Handle: d.models},
		{Method: http.MethodGet, Pattern: "/v1/models/*", Handle: d.model}, // an id may hold slashes
		{Method: http.MethodPost, Pattern: "/v1/chat/completions", Asks: true, Handle: d.chat},
		{Method: http.MethodPost, Pattern: "/v1/responses", Asks: true, Handle: d.respond},
	}
}

// councilModel is the model name of the configured council. "/" and members behind
// it name other ones: two or more, by commas, a council of these; one, that model
// alone; the name of a council of the roster, that council.
const councilModel = "council"

// ModelList is the body of GET /v1/models.
type ModelList struct {
	Object string      `json:"object"` // "list"
	Data   []ModelCard `json:"data"`
}

// ModelCard is a model that chat completions offer.
type ModelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`  // "model"
	Created int64  `json:"created"` // Unix seconds: when this daemon started
	OwnedBy string `json:"owned_by"`
}

// models is GET /v1/models: the councils, and each member of the default one alone.
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
	if plain, err := url.PathUnescape(id); err == nil && r.URL.RawPath != "" { // chi then routes by the escaped path
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

// cards returns the models that chat completions offer by name.
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

// knownModel refuses the name of a model that is not there.
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

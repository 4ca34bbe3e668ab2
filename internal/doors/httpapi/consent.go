package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
)

// Intake keeps the events that other councils send by consent.
type Intake interface {
	// Take stores the events of an organisation and returns the outcome of each event. When it returns, the accepted
	// events are on disk. The error is consent.ErrFull if the organisation has sent too much.
	Take(ctx context.Context, organisation string, events []json.RawMessage) (consent.Taken, error)
	// Board returns the leaderboard over recent events. The argument days is how many days it looks back, and must be
	// one of consent.Windows.
	Board(days int) consent.Board
}

// EventBatch is the body of POST /v1/events.
type EventBatch struct {
	Events []json.RawMessage `json:"events"` // each is a consent.Event
}

// takeEvents is POST /v1/events.
func (a *API) takeEvents(w http.ResponseWriter, r *http.Request) error {
	if a.o.Intake == nil {
		return a.noEvents(r)
	}
	if a.callerOf(r).token == nil {
		return &council.Error{
			Code: council.CodeForbidden,
			Detail: "events need tokens, which identify organisations, and this daemon has none; set " +
				a.o.Settings.Of(council.SettingAPITokens),
		}
	}
	var batch EventBatch
	p, err := a.decode(w, r, &batch, false)
	if err != nil {
		return err
	}
	if len(batch.Events) == 0 && p.count == 0 {
		p.Add("events", "there is no event", fmt.Sprintf("send 1 to %d", consent.MaxEvents))
	}
	if err := p.err("the events are not valid"); err != nil {
		return err
	}
	taken, err := a.o.Intake.Take(r.Context(), a.label(r), batch.Events)
	switch {
	case errors.Is(err, consent.ErrFull):
		return &council.Error{Code: council.CodeOverLimit, RetryAfter: 24 * time.Hour, Detail: err.Error()}
	case err != nil:
		return &council.Error{
			Code: council.CodeUnavailable, RetryAfter: 5 * time.Second, Cause: err,
			Detail: "the events cannot be written now; the log says why; send them again later",
		}
	}
	return WriteJSON(w, http.StatusOK, taken)
}

// noEvents returns the error of a daemon that accepts no events.
func (a *API) noEvents(r *http.Request) error {
	return nothing(r, "this daemon takes no events; set "+a.o.Settings.Of(council.SettingEventsIntake))
}

// eventBoard is GET /v1/leaderboard?scope=events.
func (a *API) eventBoard(w http.ResponseWriter, r *http.Request, p *parameters) error {
	days := p.choice("days", "use one of", []string{"7", "30", "90"})
	p.choice("format", "a board over events has only this form:", []string{"json"})
	if err := p.err(); err != nil {
		return err
	}
	if a.o.Intake == nil {
		return a.noEvents(r)
	}
	window := 30
	if days != "" {
		window, _ = strconv.Atoi(days) // choice has checked that it is a number
	}
	return WriteJSON(w, http.StatusOK, a.o.Intake.Board(window))
}

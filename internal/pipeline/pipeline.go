// Package pipeline runs one council from question to answer. [Pipeline.Prepare]
// validates and completes a request before anything is paid for; [Pipeline.Run]
// runs the stages in order, splits the time and money budget over them, judges
// the quorum, and builds the Session and its records. Every front door calls
// these two.
//
// It leaves HTTP to httpapi, the calls themselves to a council.Completer, and how
// records are stored to a Recorder.
//
// # Decisions
//
// Randomness and ids come in as values. The seed in a session replays its labels and orders, byte for byte, on every
// platform and release; golden files hold that.
//
// A panic ends what it happened in. In a seat it is that seat's failure, in an observer, the append or a part of a
// report that session's or request's. Every observer hears how a session ends, so that nothing stays counted as
// running.
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
	"github.com/google/uuid"
)

// Recorder keeps the records of a session. Append returns nil only when they are
// durable.
type Recorder interface {
	Append(ctx context.Context, records []council.BiasMetricRecord) error
}

// Options configure a Pipeline. Fields whose zero value is not named have none
// that is valid.
type Options struct {
	Completer council.Completer
	Recorder  Recorder // nil: no records are kept
	// Holds reports whether the Recorder holds records of a session whose plan was made
	// at that time. It is asked before a session that was taken over appends its own, and
	// again after an error, unless that is fs.ErrClosed: the Recorder is closed. Nil is for a
	// Recorder that appends the records of a session once at most.
	Holds func(ctx context.Context, sessionID string, created time.Time) (bool, error)
	// Book has the accounts of the sessions. Nil stands for one of which no session has limits but its own.
	Book *spend.Book
	// Size returns the first request of a call, as Completer would send it. It is needed for sessions that are kept.
	Size func(call council.Call) council.Attempt
	// HandsOver reports whether a session that is kept, and whose run ended for that cause, goes on in another process. Nil: none
	// does.
	HandsOver func(cause error) bool
	Observer  council.Observer // of every session; nil: none
	Log       *slog.Logger
	Version   string               // of councild
	Settings  council.SettingNames // for messages

	Lineup
	council.Limits // of a session whose request has none of its own
	council.Rules
	Sides         []council.Side // that look at the answers while the council goes on
	MaxQueryBytes int64
	Draws
	Category string // of questions that name none; "": unknown
	Language string // of questions that name none; "": unknown

	Tools        council.ToolsPolicy // of requests that offer tools; "": council.ToolsRefuse
	SideRequests string              // who answers side requests: council.SideMember, council.SideCouncil or a model; "": council.SideMember

	ConfigVersion string // "": the review prompt's version
	Secrets

	// Validations bounds the work on schemas of callers; nil: this pipeline shares its places with no other.
	Validations *Validations

	// NewID and NewSeed are replaced in tests; nil is the real thing.
	NewID   func() string
	NewSeed func() int64
}

// Lineup says who is asked.
type Lineup struct {
	// Council is the name of the council in the roster. With it Seats has the member that each of the
	// names below stands for, and Hash tells councils apart in ConfigVersion. "": there is no roster, and
	// the names are models.
	Council string
	Seats   map[string]council.Member
	Hash    func(members, reviewers []council.Member) string
	// Same says what the name of a model stands for: two names of one model at one provider stand for the same. Nil stands
	// for a function that returns the name.
	Same func(model string) string

	Models            []string
	Chairman          string   // "": the first model
	ChairmanFallbacks []string // nil: the other members by rank
	Reviewers         []string // nil: the members
	AllowedModels     []string // models that a request may name besides the configured ones
	MaxModels         int
}

// Secrets keys what records hold of questions.
type Secrets struct {
	HashSecret string // keys query_hash; required for consent 4
	// QuestionSecret returns the secret that keys question_key, or "" while it is not known. If it is nil, records have
	// no question_key.
	QuestionSecret func() string
}

// Draws says what is drawn for a session.
type Draws struct {
	Order      council.Order
	RandomSeed *int64  // nil: every session draws its own seed
	ShadowRate float64 // share of sessions for Shadow, 0 to 1
	LabelRate  float64 // share of sessions of which people are asked what they prefer, 0 to 1
}

func (o Options) validate() error {
	var errs []error
	if len(o.Models) < 2 {
		errs = append(errs, errors.New("a council needs two or more models"))
	}
	if len(o.Models) > o.MaxModels || len(o.Reviewers) > o.MaxModels {
		errs = append(errs, fmt.Errorf("more than %d models or reviewers", o.MaxModels))
	}
	if o.Quorum < 0 || o.Quorum > len(o.Models) {
		errs = append(errs, fmt.Errorf("a quorum of %d with %d models", o.Quorum, len(o.Models)))
	}
	for _, m := range append(o.named(), o.SideRequests) {
		if council.ModelOf(m) != m {
			errs = append(
				errs,
				fmt.Errorf("model %q: \"#\" and a number at the end name a second seat of a model; list the model twice instead", m),
			)
		}
	}
	if o.Consent == 4 && o.HashSecret == "" {
		errs = append(errs, errors.New("consent 4 needs a hash secret"))
	}
	return errors.Join(errs...)
}

// named returns every model that the configuration names.
func (o Options) named() []string {
	return slices.Concat(o.Models, []string{o.Chairman}, o.ChairmanFallbacks, o.Reviewers, o.AllowedModels)
}

// Pipeline prepares and runs sessions. It is safe for concurrent use.
type Pipeline struct {
	o       Options
	allowed map[string]bool
	rules   council.Rules    // of the plans that it makes
	made    council.Versions // likewise
}

// maxValidations is how many schemas are compiled, and how many replies are validated, at once.
const maxValidations = 2

// Validations are places for the work on schemas of callers, for all pipelines of a process. NewValidations makes them.
type Validations struct {
	schemas chan struct{} // one element per schema that Check compiles
	replies chan struct{} // one element per reply that is validated, with its schema
}

// New returns a Pipeline, or every reason why o describes none.
func New(o Options) (*Pipeline, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Chairman == "" {
		o.Chairman = o.Models[0]
	}
	if o.ConfigVersion == "" {
		o.ConfigVersion = stage2.PromptVersion
	}
	if o.NewID == nil {
		o.NewID = newID
	}
	o.Tools = cmp.Or(o.Tools, council.ToolsRefuse)
	o.SideRequests = cmp.Or(o.SideRequests, council.SideMember)
	if o.Same == nil {
		o.Same = func(model string) string { return model }
	}
	if o.Validations == nil {
		o.Validations = NewValidations()
	}
	if o.Book == nil {
		o.Book = spend.NewBook(spend.Options{Tariff: func(string) (spend.Tariff, bool) { return spend.Tariff{}, false }})
	}
	if o.Size == nil {
		o.Size = func(council.Call) council.Attempt { return council.Attempt{} }
	}
	if o.NewSeed == nil {
		o.NewSeed = func() int64 { return rand.Int64N(council.MaxSeed + 1) }
	}
	p := &Pipeline{
		o: o, allowed: map[string]bool{},
		rules: o.Rules,
		made: council.Versions{
			Councild: o.Version, Synthesis: stage3.PromptVersion, RecordSchema: council.RecordSchema,
		},
	}
	members := p.seats(o.Models)
	reviewers := members
	if len(o.Reviewers) > 0 {
		reviewers = p.seats(o.Reviewers)
	}
	_, once, _ := p.twins(members, reviewers)
	p.made.CouncilConfig = p.version(members, once)
	for _, m := range o.named() {
		p.allowed[m] = true
	}
	return p, nil
}

// NewValidations returns the places in which the pipelines of one process compile schemas and validate replies.
func NewValidations() *Validations {
	return &Validations{schemas: make(chan struct{}, maxValidations), replies: make(chan struct{}, maxValidations)}
}

// newID returns a UUID of version 7: ids of later sessions sort behind.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

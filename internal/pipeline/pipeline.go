// Package pipeline runs one council from question to answer. [Pipeline.Prepare] validates and completes a request
// before anything is paid for. [Pipeline.Run] runs the stages in order and splits the time and money budget over them.
// It decides whether there is a quorum, and builds the Session and its records. Every front door calls these two
// methods.
//
// The package leaves HTTP to httpapi, the calls themselves to a
// council.Completer, and the storage of records to a Recorder.
//
// # Decisions
//
// The plan holds the seed and the id of its session. The same seed gives the same labels and orders, byte for byte, on
// every platform and in every release. Golden files test this.
//
// A panic fails only the part in which it happens. A panic in a seat fails that seat. A panic in an observer, in the
// append of records or in a part of a report fails that session or request. Every observer gets an event when a session
// ends, so that no session stays counted as running.
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
	"github.com/councild/councild/internal/stage1"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
	"github.com/google/uuid"
)

// Recorder keeps the records of a session. Append returns nil only when they are
// durable.
type Recorder interface {
	Append(ctx context.Context, records []council.BiasMetricRecord) error
}

// Options configure a Pipeline. A field must be set unless its comment says what its zero value means.
type Options struct {
	Completer council.Completer
	Recorder  Recorder // If it is nil, no records are kept.
	// Holds reports whether the Recorder already holds records of a session whose plan was made at the given time.
	// A session that was taken over calls Holds before it appends its own records. It repeats the call after an
	// error, unless the error is fs.ErrClosed, which means that the Recorder is closed. Holds may be nil if the
	// Recorder never appends the records of a session twice.
	Holds func(ctx context.Context, sessionID string, created time.Time) (bool, error)
	// Book has the accounts of the sessions. With a nil Book, each session has only its own limits.
	Book *spend.Book
	// Size returns the first request of a call, as Completer would send it. It is required for runs with a log.
	Size func(call council.Call) council.Attempt
	// HandsOver reports, from the cause that ended a run, whether another process continues the session from the run's
	// log. If HandsOver is nil, no other process continues sessions.
	HandsOver func(cause error) bool
	// Observer observes every session, in addition to the observer that the caller of Run gives. It may be nil.
	Observer council.Observer
	Log      *slog.Logger
	Version  string // the version of councild
	// Settings names the settings in messages.
	Settings council.SettingNames

	Lineup
	council.Limits // A request can only lower them for its session.
	council.Rules
	// Sides are analyses of the answers (see council.Side). They run at the same time as the council. The list may be
	// empty.
	Sides []council.Side
	// Tasks has the tasks that plans can carry out, by their names. It may be empty.
	Tasks         map[string]council.Task
	MaxQueryBytes int64
	Draws
	Defaults

	// Map allows maps: a request can ask for one with Request.Map.
	Map bool
	ClientRules

	// ConfigVersion is the beginning of council_config_version in the records. "" means the version of the review
	// prompt.
	ConfigVersion string
	Secrets

	// Validations bounds the work on schemas of callers. If it is nil, this pipeline has bounds of its own.
	Validations *Validations

	// NewID and NewSeed are replaced in tests. If they are nil, ids are new UUIDs and seeds are random.
	NewID   func() string
	NewSeed func() int64
}

// Lineup says which models a session asks.
type Lineup struct {
	// Council is the name of the council in the roster. If it is set, Seats has the member for each of the names below,
	// and Hash returns the part of council_config_version that tells councils apart. If it is "", there is no roster, and
	// the names below are models.
	Council string
	Seats   map[string]council.Member
	Hash    func(members, reviewers []council.Member) string
	// Same returns the same text for two names of one model at one provider. With a nil Same, every name is a model of
	// its own.
	Same func(model string) string

	// Mode is the mode of requests that name none. "" means council.ModeCouncil. First and Form are Plan.First and
	// Plan.Form of requests that name none.
	Mode  council.Mode
	First int
	Form  *council.AnswerForm

	Models []string
	// Chairman writes the final answer. If it is "", the first model is the chairman.
	Chairman string
	// ChairmanFallbacks write if the chairman fails. Without fallbacks, the other members write, by rank.
	ChairmanFallbacks []string
	// If Reviewers is empty, the members review.
	Reviewers []string
	// AllowedModels are models that a request may name besides the configured ones.
	AllowedModels []string
	MaxModels     int
}

// ClientRules say what happens to requests that clients write for a single model, and not for a council.
type ClientRules struct {
	// Tools says what happens to requests that offer tools. "" means council.ToolsRefuse.
	Tools council.ToolsPolicy
	// SideRequests says who answers side requests: council.SideMember, council.SideCouncil or the name of a model. ""
	// means council.SideMember.
	SideRequests string
}

// Defaults apply to questions that do not name their own category and language. "" means unknown.
type Defaults struct{ Category, Language string }

// Secrets has the keys with which questions are hashed for records.
type Secrets struct {
	// HashSecret is the key of the hash in query_hash. Consent level 4 requires it.
	HashSecret string
	// QuestionSecret returns the key of the hash in question_key, or "" while that key is not known. If QuestionSecret
	// is nil, records have no question_key.
	QuestionSecret func() string
}

// Draws says what is drawn at random for a session.
type Draws struct {
	Order council.Order
	// RandomSeed and the question determine the seed of a session. If RandomSeed is nil, every session draws its own
	// seed.
	RandomSeed *int64
	// ShadowRate is the share of sessions, 0 to 1, whose synthesis [Pipeline.Shadow] compares with the top-ranked answer.
	ShadowRate float64
	// LabelRate is the share of sessions, 0 to 1, for which people are asked which answer they prefer.
	LabelRate float64
}

func (o Options) validate() error {
	var errs []error
	if len(o.Models) == 0 {
		errs = append(errs, errors.New("a council needs models"))
	}
	for _, problem := range cmp.Or(o.Mode, council.ModeCouncil).Check(len(o.Models), o.First, o.Form) {
		errs = append(errs, fmt.Errorf("%s %s: %s", problem.Field, problem.Message, problem.Fix))
	}
	if o.Form != nil {
		if _, err := stage1.NewForm(*o.Form); err != nil {
			errs = append(errs, fmt.Errorf("answer_form cannot be used: %w", err))
		}
	}
	if len(o.Models) > o.MaxModels || len(o.Reviewers) > o.MaxModels {
		errs = append(errs, fmt.Errorf("more than %d models or reviewers", o.MaxModels))
	}
	if o.Quorum < 0 || o.Quorum > len(o.Models) && o.Mode != council.ModeSingle {
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
	rules   council.Rules    // the rules of its plans
	made    council.Versions // the versions that its plans name
}

// maxValidations is how many schemas are compiled at once, and how many replies are validated at once.
const maxValidations = 2

// Validations limits how much work all pipelines of a process do at once on schemas of callers. NewValidations makes
// it.
type Validations struct {
	schemas chan struct{} // one element for each schema that Check compiles now
	replies chan struct{} // one element for each reply that is validated now
}

// New returns a Pipeline, or an error with every reason why the options are not valid.
func New(o Options) (*Pipeline, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Chairman == "" {
		o.Chairman = o.Models[0]
	}
	o.Mode = cmp.Or(o.Mode, council.ModeCouncil)
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

// NewValidations returns the Validations that the pipelines of one process share.
func NewValidations() *Validations {
	return &Validations{schemas: make(chan struct{}, maxValidations), replies: make(chan struct{}, maxValidations)}
}

// newID returns a UUID of version 7, so that the ids of later sessions sort after the ids of earlier sessions.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

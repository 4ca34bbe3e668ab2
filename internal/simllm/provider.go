package simllm

import (
	"context"
	"slices"
	"sync"

	"github.com/councild/councild"
)

// Provider holds the options of the simulated provider, with the methods that a daemon needs.
type Provider struct{ Options }

// Default returns the provider with the built-in models. A model with an ability knows the answers to the example
// questions (councild.Questions).
func Default() Provider {
	return Provider{Options{
		Models: slices.Concat(Council(), Troubled()), Closed: closed(), Written: writtenQuestions(),
	}}
}

// With returns the provider with other models and another seed.
func (p Provider) With(seed uint64, models []Model) Provider {
	p.Seed = seed
	p.Models = models
	return p
}

// closed returns the example questions of package councild.
//
//nolint:gochecknoglobals // they are read once
var closed = sync.OnceValue(func() []Closed {
	questions, err := ReadClosed(councild.Questions())
	if err != nil {
		panic(err) // a test reads the same questions
	}
	return questions
})

// Names returns the names of the models.
func (p Provider) Names() []string {
	names := make([]string, len(p.Models))
	for i, m := range p.Models {
		names[i] = m.Name
	}
	return names
}

// Price returns what a model charges for prompts and for replies, in US dollars per million tokens. Settings may follow
// the name: see [Find]. ok is false if there is no such model. The error says what is wrong with the settings.
func (p Provider) Price(name string) (input, output float64, ok bool, err error) {
	m, ok, err := Find(p.Models, name)
	return m.Price.Input, m.Price.Output, ok, err
}

// Start starts a server on a free port of 127.0.0.1. It returns the base URL of the server and a function that
// stops it. The context limits only the start.
func (p Provider) Start(ctx context.Context) (baseURL string, stop func(), err error) {
	running, err := Start(ctx, p.Options)
	if err != nil {
		return "", nil, err
	}
	return running.URL(), running.Close, nil
}

package simllm

import (
	"context"
	"slices"
	"sync"

	"github.com/councild/councild/examples"
)

// Provider is the simulated provider as a daemon is handed it: its models, and how it is started.
type Provider struct{ Options }

// Default returns the provider with the built-in models, some of which know the answers to the questions of examples.
func Default() Provider {
	return Provider{Options{Models: slices.Concat(Council(), Troubled()), Closed: closed()}}
}

// With returns the provider with other models and another seed.
func (p Provider) With(seed uint64, models []Model) Provider {
	p.Seed = seed
	p.Models = models
	return p
}

// closed returns the questions of examples.
//
//nolint:gochecknoglobals // they are read once
var closed = sync.OnceValue(func() []Closed {
	questions, err := ReadClosed(examples.Questions())
	if err != nil {
		panic(err) // impossible: a test reads them
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

// Price returns what a model costs, in US dollars for a million tokens of its prompts and of its replies. Its name may hold
// settings, as [Find] describes; ok is false if there is no such model. The error says what is wrong with the settings.
func (p Provider) Price(name string) (input, output float64, ok bool, err error) {
	m, ok, err := Find(p.Models, name)
	return m.Price.Input, m.Price.Output, ok, err
}

// Start starts a server at a free port of 127.0.0.1, and returns its base URL and how to stop it. The context limits only
// the start.
func (p Provider) Start(ctx context.Context) (baseURL string, stop func(), err error) {
	running, err := Start(ctx, p.Options)
	if err != nil {
		return "", nil, err
	}
	return running.URL(), running.Close, nil
}

package daemon

import (
	"context"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
)

// Comparer says how answers differ in how they speak of people. It implements httpapi.Comparer.
type Comparer struct{ rules disagreement.Rules }

// NewComparer returns a Comparer as the settings say. Its error says what is wrong with the lexicon.
func NewComparer(cfg config.Config) (*Comparer, error) {
	lexicon, err := ReadLexicon(cfg.Lexicon)
	if err != nil {
		return nil, err
	}
	return &Comparer{disagreement.Rules{
		Terms: disagreement.NewMatcher(lexicon), Threshold: cfg.DemographicsThreshold,
		MaxQuestion: int64(cfg.MaxQueryBytes), MaxAnswer: int64(cfg.MaxUpstreamBytes), Settings: config.SettingNames(),
	}}, nil
}

// CheckDisagreement implements httpapi.Comparer.
func (c *Comparer) CheckDisagreement(r council.DisagreementRequest) error {
	_, err := c.rules.Read(r)
	return err
}

// Disagreement implements httpapi.Comparer.
func (c *Comparer) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
	in, err := c.rules.Read(r)
	if err != nil {
		return council.DisagreementReport{}, err
	}
	report, ok := disagreement.Report(ctx, in)
	if !ok {
		return report, &council.Error{Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx)}
	}
	return report, nil
}

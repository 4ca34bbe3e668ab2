package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/trial"
)

type importCmd struct {
	From string `help:"Form of the judgements: ${enum}." enum:"judgebench,mtbench-pairs,csv" required:""`
	In   string `help:"File of judgements." required:"" placeholder:"FILE"`
	Out  string `help:"New file for the rows." required:"" placeholder:"FILE"`
}

// Run reads judgements from another source, and writes records or graded rows. It prints every line that it rejects.
// Its error then says how many lines it rejected.
func (c importCmd) Run(ctx context.Context, std IO) (err error) {
	in, err := os.Open(c.In)
	if err != nil {
		return usageError{fmt.Errorf("--in: %w", err)}
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := newFile(c.Out); err != nil {
		return err
	}
	out, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageError{fmt.Errorf("--out must name a new file: %w", err)}
	}
	s, err := trial.Import(ctx, trial.ImportFormat(c.From), c.questionKey(ctx, std), in, out, func(r trial.Rejection) {
		_, _ = fmt.Fprintln(terminal{std.Stderr}, r.Error())
	})
	if err = errors.Join(err, out.Close()); err != nil {
		err = errors.Join(fmt.Errorf("reading %s: %w", c.In, err), os.Remove(c.Out))
		if _, ok := errors.AsType[*trial.HeaderError](err); ok {
			return usageError{err}
		}
		return err
	}
	kind := "records\nReport:   councild report bias --sessions 0 --days 0 --input " + c.Out
	if s.Graded {
		kind = "graded rows"
	}
	_, err = fmt.Fprintf(std.Stdout, "Accepted: %d lines\nRejected: %d lines\n%s: %d %s\n",
		s.Accepted, s.Rejected, c.Out, s.Written, kind)
	if s.Rejected > 0 {
		err = errors.Join(err, fmt.Errorf("%d lines of %s are not rows, and were left out", s.Rejected, c.In))
	}
	return err
}

// questionKey returns the function that makes the keys of questions. The first call of that function opens the secret.
func (c importCmd) questionKey(ctx context.Context, std IO) trial.QuestionKey {
	secret := sync.OnceValue(func() string {
		cfg, err := loadConfig()
		if err != nil {
			_, _ = fmt.Fprintln(terminal{std.Stderr},
				"councild: warning: the records have no question keys, because the settings cannot be read:", err)
			return ""
		}
		return questionSecret(ctx, std, cfg, c.Out, false)()
	})
	return func(question string) *string {
		if secret() == "" {
			return nil
		}
		return new(anonymize.KeyedHash(secret(), question))
	}
}

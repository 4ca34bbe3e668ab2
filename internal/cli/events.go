package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/councild/councild/internal/daemon"
)

type eventsCmd struct {
	Input    string `help:"Record file to read; default LLM_COUNCIL_BIAS_STORE." placeholder:"FILE"`
	Level    *int   `help:"Level of consent, 0 to 4; default LLM_COUNCIL_BIAS_CONSENT." placeholder:"N"`
	Sessions int    `help:"How many sessions to show at most." default:"5" placeholder:"N"`
}

// Help returns the details that --help prints below the summary of the command.
func (eventsCmd) Help() string {
	return "The command sends nothing. Each line is one event, byte for byte as it would be sent, except for its " +
		"random ids. At levels 0 and 1 there are no events. An event has a query hash only if its records were " +
		"made at level 4."
}

// Run prints the events that the newest sessions would send.
func (c eventsCmd) Run(ctx context.Context, std IO) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	level := *cmp.Or(c.Level, &cfg.BiasConsent)
	if level < 0 || level > 4 || c.Sessions < 1 {
		return usageError{errors.New("--level or --sessions is out of range: write --level 0 to 4, --sessions 1 or " +
			"more")}
	}
	found, err := daemon.PreviewEvents(ctx, cfg, cmp.Or(c.Input, cfg.BiasStore), level, c.Sessions)
	if err != nil {
		return fmt.Errorf("reading the records: %w", err)
	}
	out := json.NewEncoder(std.Stdout)
	out.SetEscapeHTML(false)
	for _, e := range found {
		if err := out.Encode(e); err != nil {
			return fmt.Errorf("writing the events: %w", err)
		}
	}
	if len(found) == 0 {
		_, err = fmt.Fprintf(std.Stderr, "No event: at level %d nothing is sent, or no session of the records has a ranking.\n", level)
	}
	return err
}

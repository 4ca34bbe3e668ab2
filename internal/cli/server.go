package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
)

// sessionsTimeout is how long a command waits for one answer of the daemon.
const sessionsTimeout = 30 * time.Second

// server has the flag that names the daemon to ask.
type server struct {
	Server string `placeholder:"URL" help:"The daemon's URL, asked with the first of LLM_COUNCIL_API_TOKENS; default: LLM_COUNCIL_ADDR."`
}

// ask makes a client for the daemon, and calls its last argument with this client and a context that ends after
// sessionsTimeout.
func (s server) ask(ctx context.Context, do func(context.Context, *client.Client) error) error {
	cfg, err := loadConfig()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, sessionsTimeout)
	defer cancel()
	return asking(ctx, cfg, s.Server, func(d *client.Client) error { return do(bounded, d) })
}

// asking makes a client for the daemon at an address, or for the daemon in the settings if the address is "". It calls
// its last argument with this client. If no daemon answers or the daemon refuses, the error says what to type.
func asking(ctx context.Context, cfg config.Config, address string, do func(*client.Client) error) error {
	o, err := daemonAt(cfg, address)
	if err != nil {
		return err
	}
	d, err := client.New(o)
	if err != nil {
		return usageError{fmt.Errorf("--server: %w", err)}
	}
	defer d.Close()
	err = do(d)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return explainRefusal(o, err)
}

// daemonAt returns the client options for the daemon at an address, or for the daemon in the settings if the
// address is "".
func daemonAt(cfg config.Config, address string) (client.Options, error) {
	address, err := daemonURL(cmp.Or(address, daemon.Reachable(cfg.Addr)))
	if err != nil {
		return client.Options{}, usageError{err}
	}
	o := client.Options{URL: address}
	if len(cfg.APITokens) > 0 {
		o.Token = cfg.APITokens[0].Secret.Reveal()
	}
	return o, nil
}

// explainRefusal turns the error of a client into an error that says what to type or to set, if no daemon answers or
// the daemon refuses.
func explainRefusal(o client.Options, err error) error {
	address := o.URL
	if unreachable, ok := errors.AsType[*url.Error](err); ok {
		if errors.Is(err, http.ErrSchemeMismatch) {
			return fmt.Errorf("the daemon at %s does not speak TLS: write --server %s", address,
				"http"+strings.TrimPrefix(address, "https"))
		}
		return fmt.Errorf("no daemon answers at %s: %w; start it with councild serve, "+
			"or name another one with --server",
			address, unreachable.Err)
	}
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok || refused.Status == 0: // for example a session that failed
		return err
	case refused.Status == http.StatusUnauthorized && o.Token == "":
		return fmt.Errorf("the daemon at %s asks for a token: set LLM_COUNCIL_API_TOKENS here to one of its tokens",
			address)
	case refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("the daemon at %s does not know the first token of LLM_COUNCIL_API_TOKENS: "+
			"set it to one of its tokens", address)
	case refused.Redirect != "":
		return fmt.Errorf("%s redirects to %s: write --server %[2]s", address, refused.Redirect)
	case refused.Cause == nil:
		return fmt.Errorf("the server at %s is not councild: %w; name a councild with --server http://HOST:PORT",
			address, err)
	case refused.Status == http.StatusNotFound && strings.Contains(refused.Cause.Detail, "no session"):
		problem, _, _ := strings.Cut(refused.Cause.Detail, "; ") // The remedy speaks of HTTP.
		return fmt.Errorf("%s: find its id with councild sessions list --server %s", problem, address)
	default:
		return err
	}
}

// daemonURL returns the URL of a daemon without /v1. It accepts a host and a port without http://, and a URL with
// /v1 or a slash at its end.
func daemonURL(text string) (string, error) {
	address := strings.TrimSpace(text)
	if _, _, err := net.SplitHostPort(address); err == nil && !strings.Contains(address, "/") {
		address = "http://" + address
	}
	const remedy = "write --server http://HOST:PORT"
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !config.HasHost(u) {
		return "", fmt.Errorf("--server: %q is not the address of a daemon: %s", text, remedy)
	}
	if u.User != nil || strings.ContainsAny(address, "?#") {
		return "", fmt.Errorf("--server: the address holds more than a host, a port and a path: "+
			"%s, and set LLM_COUNCIL_API_TOKENS", remedy)
	}
	address = strings.TrimRight(address, "/")
	address = strings.TrimRight(strings.TrimSuffix(address, "/v1"), "/")
	if slices.Contains(strings.Split(address, "/"), "v1") {
		return "", fmt.Errorf("--server: %q is a path inside the daemon: write --server %s", text,
			u.Scheme+"://"+u.Host)
	}
	return address, nil
}

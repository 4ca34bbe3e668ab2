package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/doors/httpapi"
)

// madeToken matches the content of a file with a token that rand.Text made.
var madeToken = regexp.MustCompile(`^([A-Z2-7]{26})\n?$`)

// requireTokens returns the bearer tokens. If there are tokens, a caller needs one of them. If other machines can reach
// the address and no token is configured, requireTokens makes a token. It keeps that token in the file api-token beside
// the records, so that sessions have the same owner after a restart.
func requireTokens(
	ctx context.Context, cfg config.Config, ofRoster []config.Token, addr net.Addr, log *slog.Logger,
) ([]httpapi.Token, error) {
	tokens := callers(slices.Concat(cfg.APITokens, ofRoster))
	if address, ok := addr.(*net.TCPAddr); len(tokens) > 0 || !ok || address.IP.IsLoopback() {
		return tokens, nil
	}
	path := filepath.Join(filepath.Dir(cfg.BiasStore), "api-token")
	token, err := readToken(ctx, path, log)
	if errors.Is(err, fs.ErrNotExist) {
		token = rand.Text()
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = disk.Replace(disk.OS{}, path, []byte(token+"\n"))
		}
		if err != nil {
			log.WarnContext(ctx, "the token cannot be stored: the next start makes a new token, which cannot see "+
				"this token's sessions; set LLM_COUNCIL_API_TOKENS",
				"file", path, "error", err)
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the token of an earlier start: %w; remove the file to have another token made, "+
			"or set LLM_COUNCIL_API_TOKENS", err)
	}
	log.WarnContext(ctx, "other machines can reach this address, and LLM_COUNCIL_API_TOKENS is not set: callers "+
		"need this generated token",
		"token", token, "file", path)
	return []httpapi.Token{{Secret: token}}, nil
}

// callers converts tokens of the settings into tokens of httpapi.
func callers(tokens []config.Token) []httpapi.Token {
	all := make([]httpapi.Token, len(tokens))
	for i, t := range tokens {
		all[i] = httpapi.Token{
			Name: t.Name, Secret: t.Secret.Reveal(), SHA256: t.SHA256, May: t.May,
			Limits: httpapi.Limits{Sessions: t.MaxSessions, PerMinute: t.RateLimit},
		}
	}
	return all
}

// readToken reads the file that requireTokens wrote. It logs a warning if other users may read the file.
func readToken(ctx context.Context, path string, log *slog.Logger) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 1<<10 { // a pipe or a device may never end
		return "", fmt.Errorf("%s holds no token", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := madeToken.FindSubmatch(data)
	if token == nil {
		return "", fmt.Errorf("%s holds no token", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		log.WarnContext(ctx, "other users of this machine can read the token: restrict the file with chmod 600",
			"file", path, "mode", info.Mode().Perm().String())
	}
	return string(token[1]), nil
}

package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

// Secret is a text that only Reveal returns. Printing, logging or encoding a Secret gives "[redacted]", or "" for an
// empty Secret. Every text is a valid Secret. So parsing never fails, and no error can quote the secret.
type Secret string

const redacted = "[redacted]"

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String returns the redacted form.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format prints the redacted form for every verb, because fmt calls String for some verbs only.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns the redacted form. It never fails.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns the redacted form.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Token is a bearer token that clients may use. It stands in API_TOKENS or in the roster.
type Token struct {
	// Name has 1 to 32 letters, digits, - and _. It may be "" in API_TOKENS. The sessions of a token belong to its name.
	// If the token has no name, they belong to the token itself.
	Name string
	// Secret is the token. It is "" if the token stands in the roster.
	Secret Secret
	// SHA256 is the hash of the token. It is nil if the token stands in API_TOKENS.
	SHA256 *[sha256.Size]byte
	// Only the roster sets the next three limits. If a limit is nil, the limit of the daemon applies.
	MaxCostUSDPerDay *float64
	RateLimit        *int // sessions a minute
	MaxSessions      *int // sessions at once
	// May has the rights of the token. If it is nil, the token has all rights but council.MayAdmin.
	May []council.Right
}

// Label returns the text that names the token in audiences of councils and in costs.
func (t Token) Label() string {
	return council.TokenLabel(t.Name, sha256.Sum256([]byte(t.Secret)))
}

// Tokens are the bearer tokens of API_TOKENS. After Load, no two of them are equal or have the same name.
type Tokens []Token

// TokenName matches the name of a token.
var TokenName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Set splits a comma list whose entries are token or name:token. It implements envconfig.Setter and never fails. Load
// checks the entries later, so that it can report every wrong one. An entry without a valid name becomes a token as a
// whole.
func (t *Tokens) Set(text string) error {
	*t = nil
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		token := Token{Secret: Secret(entry)}
		if name, secret, ok := strings.Cut(entry, ":"); ok && TokenName.MatchString(name) {
			token = Token{Name: name, Secret: Secret(strings.TrimSpace(secret))}
		}
		*t = append(*t, token)
	}
	return nil
}

// Bytes is a size in bytes.
type Bytes int64

// Set reads a whole number of bytes, or a whole number followed by a unit. KiB, MiB and GiB are powers of 1024. KB, MB
// and GB are powers of 1000 (IEC 80000-13). Units may be in lower case. Set implements envconfig.Setter.
func (b *Bytes) Set(text string) error {
	number := strings.TrimRightFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.ParseUint(number, 10, 63)
	unit, known := map[string]uint64{
		"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30,
	}[strings.ToUpper(strings.TrimSpace(text[len(number):]))]
	if err != nil || !known || n > math.MaxInt64/unit {
		return errors.New("is not a size: write a whole number of bytes, or one with KiB, MiB or GiB, such as 8MiB")
	}
	*b = Bytes(n * unit) //nolint:gosec // the product was compared with MaxInt64
	return nil
}

// Provider is an OpenAI-compatible endpoint besides the default one. It stands in PROVIDERS or in the roster.
type Provider struct {
	Name    string // unique, of a to z, 0 to 9, _ and -
	BaseURL string // absolute, http or https, without a slash at the end
	APIKey  Secret // "" if the provider needs none
	// Headers and Query are sent with each request. Only the roster sets them.
	Headers, Query map[string]Secret
	// MaxCalls limits the calls in flight. IdleTimeout limits the time between two bytes of a reply. 0 stands for the
	// default limit. Only the roster sets these limits.
	MaxCalls    int
	IdleTimeout time.Duration
	// InRoster says that the roster names the provider, and not PROVIDERS.
	InRoster bool
}

// KeyVariable returns the name of the variable that holds the provider's key.
func (p Provider) KeyVariable() string {
	return keyPrefix + strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))
}

// Providers are the providers besides the default one.
type Providers []Provider

// Set splits a comma list of name=url. It implements envconfig.Setter and never fails. Load checks the entries later,
// so that it can report every wrong one.
func (p *Providers) Set(text string) error {
	*p = nil
	for entry := range strings.SplitSeq(text, ",") {
		name, url, _ := strings.Cut(entry, "=")
		*p = append(*p, Provider{Name: strings.TrimSpace(name), BaseURL: strings.TrimSpace(url)})
	}
	return nil
}

package config

import (
	"cmp"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/councild/councild/internal/council"
)

const (
	useLevel     = "use debug, info, warn or error"
	useURL       = "is not an absolute http or https URL: write it as in https://host/v1, without user, query, fragment or blanks; a port is 1 to 65535"
	useVisible   = "has a character that is not visible ASCII, and HTTP headers allow no other"
	useHTTPS     = "is not an https address: use https, or an IP address in a network of LLM_COUNCIL_EVENT_ALLOW"
	keyAlone     = ": write the key alone, without blanks or line breaks"
	outOfRange   = "is out of range: "
	emptyEntry   = "entry %d is empty: remove a comma, or write the missing entry"
	maxDays      = 36500
	minTokenSize = 16 // in characters. 16 hexadecimal digits are 64 bits.
	// maxPlaces is the largest number of sessions at once that the settings can give. It replaces every larger number,
	// because no machine can run more, and because products with larger numbers could overflow.
	maxPlaces = 1 << 20
	// webhookPrefix begins a secret of Standard Webhooks. Its key has minWebhookKey to maxWebhookKey bytes.
	webhookPrefix = "whsec_"
	minWebhookKey = 24
	maxWebhookKey = 64
	// maxWebhookKeys is two, so that a secret can be replaced while receivers still check the old one.
	maxWebhookKeys = 2
)

// complete brings the values into the form in which they are checked and used. It trims lists, expands ~ in paths, and
// sets BiasStore. Load calls complete before check.
func (c *Config) complete(p *problems) {
	for variable, models := range map[string][]string{
		"LLM_COUNCIL_MODELS": c.Models, "LLM_COUNCIL_ALLOWED_MODELS": c.AllowedModels,
		"LLM_COUNCIL_CORS_ORIGINS": c.CORSOrigins, "LLM_COUNCIL_PRICES": c.Prices,
		"LLM_COUNCIL_EVENT_ALLOW": c.EventAllow,
	} {
		trim(p, variable, models)
	}

	// Paths are appended to these URLs. With a double slash, the result would be another path.
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	for i := range c.Providers {
		c.Providers[i].BaseURL = strings.TrimRight(c.Providers[i].BaseURL, "/")
	}
	for i, text := range c.CORSOrigins {
		if origin, ok := originOf(text); ok {
			c.CORSOrigins[i] = origin
		}
	}
	for variable, path := range map[string]*string{
		"LLM_COUNCIL_BIAS_STORE": &c.BiasStore, "LLM_COUNCIL_DATA_DIR": &c.DataDir, "LLM_COUNCIL_EVENT_SINK": &c.EventSink,
		"LLM_COUNCIL_NATS_CA": &c.NatsCA, "LLM_COUNCIL_ROSTER": &c.Roster,
	} {
		expand(p, variable, path)
	}
	if c.BiasStore == "" {
		dir := c.DataDir
		if dir == "" || dir == off {
			dir = "~/.llm-council"
		}
		c.BiasStore = filepath.Join(dir, "bias_metrics.jsonl")
		expand(p, "LLM_COUNCIL_BIAS_STORE", &c.BiasStore)
	}
}

// expand replaces ~ at the beginning of a path with the home directory.
func expand(p *problems, variable string, path *string) {
	rest, ok := strings.CutPrefix(*path, "~")
	if !ok {
		return
	}
	home, err := os.UserHomeDir()
	if err != nil || !strings.HasPrefix(rest, "/") {
		p.add(variable, "%q begins with ~, and the home directory is not known: write an absolute path", *path)
	}
	*path = filepath.Join(home, rest)
}

// trim removes the white space around the entries of a comma list, and reports empty entries.
func trim(p *problems, variable string, list []string) {
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
		if list[i] == "" {
			p.add(variable, emptyEntry, i+1)
		}
	}
}

// check reports every value that is out of its range or contradicts another setting.
func (c *Config) check(p *problems) {
	c.checkProviders(p)
	c.checkSecrets(p)
	c.checkCluster(p)
	c.checkCouncil(p)
	c.checkEvents(p)
	c.checkWebhooks(p)

	if c.RandomSeed != nil && *c.RandomSeed == -1 {
		c.RandomSeed = nil
	}
	for i, origin := range c.CORSOrigins {
		if _, ok := originOf(origin); origin != "" && !ok {
			p.add("LLM_COUNCIL_CORS_ORIGINS", "entry %d is not an origin: write it as a browser does, as in https://chat.example.com, without a "+
				"path, in ASCII (xn--... for other letters); * is refused, because any page could then spend what the council costs", i+1)
		}
	}
	for _, r := range slices.Concat(c.rules(), c.costRules()) {
		if !r.ok {
			p.invalid(r.variable, r.problem)
		}
	}
}

// rule is something that must hold for the value of a variable.
type rule struct {
	ok                bool
	variable, problem string
}

// rules returns the rules for single variables, other than those of costs.
func (c *Config) rules() []rule {
	policies := []council.PartialPolicy{council.PolicyAvailable, council.PolicyTiedLast}
	modes := []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff}
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	members := len(c.Models) // It is 0 without a council.
	return []rule{
		{
			isHostPort(c.Addr), "LLM_COUNCIL_ADDR",
			"is not host:port with a port from 0 to 65535: write it as in 127.0.0.1:8080",
		},
		{c.Order.Known(), "LLM_COUNCIL_ORDER", "is not an order: use " + council.OrderChoices},
		{
			slices.Contains(policies, c.PartialBallots), "LLM_COUNCIL_PARTIAL_BALLOTS",
			"is not a policy: use available or tied_last",
		},
		{slices.Contains(modes, c.BiasFsync), "LLM_COUNCIL_BIAS_FSYNC", "is not a mode: use session, interval or off"},
		{slices.Contains(levels, c.LogLevel), "LLM_COUNCIL_LOG_LEVEL", "is not a level: " + useLevel},

		{c.MaxModels >= 2, "LLM_COUNCIL_MAX_MODELS", outOfRange + "use 2 or more"},
		{c.MaxSessions >= 1, "LLM_COUNCIL_MAX_SESSIONS", outOfRange + "use 1 or more"},

		{c.Timeout > 0, "LLM_COUNCIL_TIMEOUT", outOfRange + "use a time above 0"},
		{c.AttemptTimeout > 0, "LLM_COUNCIL_ATTEMPT_TIMEOUT", outOfRange + "use a time above 0"},
		{c.MaxAttempts >= 1, "LLM_COUNCIL_MAX_ATTEMPTS", outOfRange + "use 1 or more"},
		{
			within(c.StragglerGrace, 0, math.MaxInt64), "LLM_COUNCIL_STRAGGLER_GRACE",
			outOfRange + "use a time of 0 or more, or off",
		},
		{
			within(c.MonitorInterval, time.Minute, math.MaxInt64), "LLM_COUNCIL_MONITOR_INTERVAL",
			outOfRange + "use a time of 1m or more, or off",
		},
		{c.DrainTimeout >= 0, "LLM_COUNCIL_DRAIN_TIMEOUT", outOfRange + "use a time of 0 or more"},

		{
			c.Quorum >= 0 && (members == 0 || c.Quorum <= members), "LLM_COUNCIL_QUORUM",
			outOfRange + "use 1 to the number of LLM_COUNCIL_MODELS, or 0 for more than half of them",
		},
		{within(c.MaxTotalTokens, 1, math.MaxInt64), "LLM_COUNCIL_MAX_TOTAL_TOKENS", outOfRange + "use 1 or more"},
		{within(c.MaxOutputTokens, 1, math.MaxInt), "LLM_COUNCIL_MAX_OUTPUT_TOKENS", outOfRange + "use 1 or more"},
		{within(c.Temperature, 0, 2), "LLM_COUNCIL_TEMPERATURE", outOfRange + "use 0 to 2"},
		{within(c.ReviewTemperature, 0, 2), "LLM_COUNCIL_REVIEW_TEMPERATURE", outOfRange + "use 0 to 2"},
		{
			within(c.RandomSeed, 0, council.MaxSeed), "LLM_COUNCIL_RANDOM_SEED",
			outOfRange + "use 0 to 9007199254740991, or -1 so that every session draws its own",
		},
		{within(&c.SelfReviewRate, 0, 1), "LLM_COUNCIL_SELF_REVIEW_RATE", outOfRange + "use 0 to 1"},
		{within(&c.ShadowRate, 0, 1), "LLM_COUNCIL_SHADOW_RATE", outOfRange + "use 0 to 1"},
		{within(&c.LabelRate, 0, 1), "LLM_COUNCIL_LABEL_RATE", outOfRange + "use 0 to 1"},

		{within(&c.LengthCorrelationThreshold, 0, 1), "LLM_COUNCIL_LENGTH_CORRELATION_THRESHOLD", outOfRange + "use 0 to 1"},
		{
			within(&c.PositionVarianceThreshold, 0, math.MaxFloat64), "LLM_COUNCIL_POSITION_VARIANCE_THRESHOLD",
			outOfRange + "use 0 or more",
		},
		{within(&c.DemographicsThreshold, 0, 1), "LLM_COUNCIL_DEMOGRAPHICS_THRESHOLD", outOfRange + "use 0 to 1"},
		{
			c.Demographics == DemographicsOff || c.Demographics == council.BackendLexicon || c.Demographics.Asks(),
			"LLM_COUNCIL_DEMOGRAPHICS",
			"is not a backend: use lexicon, llm_judge, embedding or off",
		},
		{
			c.Demographics != council.BackendJudge || c.JudgeModel != "", "LLM_COUNCIL_DEMOGRAPHICS",
			"needs a judge: name a model in LLM_COUNCIL_JUDGE_MODEL, or use lexicon",
		},
		{
			c.Demographics != council.BackendEmbedding || c.EmbeddingModel != "", "LLM_COUNCIL_DEMOGRAPHICS",
			"needs embeddings: name a model in LLM_COUNCIL_EMBEDDING_MODEL, or use lexicon",
		},
		{within(&c.BiasConsent, 0, 4), "LLM_COUNCIL_BIAS_CONSENT", outOfRange + "use 0 to 4"},
		{within(c.BiasRetentionDays, 1, maxDays), "LLM_COUNCIL_BIAS_RETENTION_DAYS", outOfRange + "use 1 to 36500"},
		{c.BiasWindowSessions >= 0, "LLM_COUNCIL_BIAS_WINDOW_SESSIONS", outOfRange + "use 0 or more"},
		{c.BiasWindowDays >= 0, "LLM_COUNCIL_BIAS_WINDOW_DAYS", outOfRange + "use 0 or more"},
		{c.MinBiasSessions >= 10, "LLM_COUNCIL_MIN_BIAS_SESSIONS", outOfRange + "use 10 or more"},

		{
			validPrefix.MatchString(c.NatsPrefix), "LLM_COUNCIL_NATS_PREFIX",
			"is not a prefix: use 1 to 32 of a to z, 0 to 9, - and _",
		},
		{within(&c.NatsReplicas, 1, 5), "LLM_COUNCIL_NATS_REPLICAS", outOfRange + "use 1 to 5"},
		{c.SessionRetention >= 0, "LLM_COUNCIL_SESSION_RETENTION", outOfRange + "use a time of 0 or more"},
		{c.SessionsKept >= 0, "LLM_COUNCIL_SESSIONS_KEPT", outOfRange + "use 0 or more"},
		{c.MaxQueryBytes >= 1, "LLM_COUNCIL_MAX_QUERY_BYTES", outOfRange + "use 1 or more"},
	}
}

// costRules returns the rules for the limits of costs.
func (c *Config) costRules() []rule {
	return []rule{
		{
			within(c.MaxCostUSD, math.SmallestNonzeroFloat64, math.MaxFloat64), "LLM_COUNCIL_MAX_COST_USD",
			outOfRange + "use an amount above 0",
		},
		{
			within(c.MaxCostUSDPerDay, math.SmallestNonzeroFloat64, math.MaxFloat64), "LLM_COUNCIL_MAX_COST_USD_PER_DAY",
			outOfRange + "use an amount above 0",
		},
		{
			within(c.MaxCostUSDPerTokenDay, math.SmallestNonzeroFloat64, math.MaxFloat64),
			"LLM_COUNCIL_MAX_COST_USD_PER_TOKEN_DAY",
			outOfRange + "use an amount above 0",
		},
		{c.CostLimits == "soft" || c.CostLimits == "hard", "LLM_COUNCIL_COST_LIMITS", "is neither soft nor hard: write one of them"},
		{
			!c.HasHardLimits() || !c.HasDayLimit() || c.MaxCostUSD != nil || c.MaxOutputTokens != nil,
			"LLM_COUNCIL_COST_LIMITS",
			"needs a limit for the cost of each session, because there is a daily limit: set LLM_COUNCIL_MAX_COST_USD or LLM_COUNCIL_MAX_OUTPUT_TOKENS",
		},
		{
			c.DataDir != off || !c.HasDayLimit(), "LLM_COUNCIL_DATA_DIR",
			"is off, and a daily limit needs a file there: name a directory, or unset it",
		},
	}
}

// within reports whether a value lies between two bounds or equals one of them. It returns true for nil, which stands
// for a setting without a value. It returns false for NaN.
func within[T cmp.Ordered](value *T, least, most T) bool {
	return value == nil || (least <= *value && *value <= most)
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.ContainsFunc(host, unicode.IsSpace) {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// IsBaseURL reports whether a text can be the base URL of a provider. It returns false for a URL with a user, a query
// or a fragment, because these parts often hold a key, and base URLs are shown with the other settings.
func IsBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && HasHost(u) && u.User == nil &&
		!strings.ContainsAny(text, "?#") && !strings.ContainsFunc(text, unicode.IsSpace)
}

// HasHost reports whether a URL names a host. If there is a colon after the host, a port from 1 to 65535 must follow.
func HasHost(u *url.URL) bool {
	if u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && port > 0
}

// originOf returns an origin in the form that browsers send: in lower case, without a slash at the end and without a
// default port. It returns false if the text is not an origin.
func originOf(text string) (origin string, ok bool) {
	u, err := url.Parse(strings.ToLower(text))
	defaults := map[string]string{"http": ":80", "https": ":443"}
	if err != nil || defaults[u.Scheme] == "" || !HasHost(u) {
		return "", false
	}
	if strings.TrimSuffix(strings.ToLower(text), "/") != u.Scheme+"://"+u.Host ||
		strings.ContainsFunc(u.Host, func(c rune) bool { return c > unicode.MaxASCII || strings.ContainsRune("*%,", c) }) {
		return "", false
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := strings.TrimLeft(u.Port(), "0"); port != "" && ":"+port != defaults[u.Scheme] {
		host += ":" + port
	}
	return u.Scheme + "://" + host, true
}

// checkProviders checks the providers. Its messages do not quote names and URLs, because a wrong name or URL may hold a
// key.
func (c *Config) checkProviders(p *problems) {
	if !IsBaseURL(c.BaseURL) {
		p.add("LLM_COUNCIL_BASE_URL", useURL)
	}
	seen := map[string]bool{}
	for i, provider := range c.Providers {
		if !ProviderName.MatchString(provider.Name) {
			p.add("LLM_COUNCIL_PROVIDERS",
				"entry %d has no valid name: write name=url, the name of a to z, 0 to 9, _ and -", i+1)
			continue // Without a name, it is not certain which part of the entry is the URL.
		}
		key := provider.KeyVariable()
		switch {
		case provider.Name == SimProvider:
			p.add("LLM_COUNCIL_PROVIDERS", "entry %d is named sim, which is the name of a built-in provider: choose another name", i+1)
		case strings.HasSuffix(key, fileSuffix):
			p.add("LLM_COUNCIL_PROVIDERS",
				"entry %d has a name that ends in \"file\", which would clash with LLM_COUNCIL_API_KEY_..._FILE: choose another name", i+1)
		case seen[key]:
			p.add("LLM_COUNCIL_PROVIDERS",
				"entry %d has the name of an earlier one (- and _ count as equal): choose another name", i+1)
		}
		seen[key] = true
		if !IsBaseURL(provider.BaseURL) {
			p.add("LLM_COUNCIL_PROVIDERS", "the URL of entry %d "+useURL, i+1)
		}
	}
}

func (c *Config) checkSecrets(p *problems) {
	c.checkTokens(p)
	for variable, secret := range map[string]Secret{
		"LLM_COUNCIL_SESSIONS_KEY": c.SessionsKey, "LLM_COUNCIL_HASH_SECRET": c.HashSecret,
	} {
		if secret != "" && len(secret) < minTokenSize {
			p.add(variable, "has fewer than %d characters: use a long random text, such as openssl rand -hex 32 prints",
				minTokenSize)
		}
	}
	if !isVisible(c.APIKey) {
		p.add("LLM_COUNCIL_API_KEY", useVisible+keyAlone)
	}
	for _, provider := range c.Providers {
		if !isVisible(provider.APIKey) {
			p.add(provider.KeyVariable(), useVisible+keyAlone)
		}
	}
	// readFiles has reported the error of a HASH_SECRET_FILE that it could not read.
	unreadable := p.texts["LLM_COUNCIL_HASH_SECRET_FILE"] != ""
	if c.LabelRate > 0 && c.HashSecret == "" && !unreadable {
		p.add("LLM_COUNCIL_HASH_SECRET", "is not set, and LLM_COUNCIL_LABEL_RATE is above 0: "+
			"set it to a long random text, because feedback is refused without it")
	}
	if c.BiasConsent == 4 && c.HashSecret == "" && !unreadable {
		p.add("LLM_COUNCIL_HASH_SECRET", "is not set, and LLM_COUNCIL_BIAS_CONSENT is 4: "+
			"set it to a long random text, or choose a lower consent level")
	}
}

// checkEvents checks the settings for events. Its messages do not quote the address, because a wrong address may hold a
// key.
func (c *Config) checkEvents(p *problems) {
	for i, text := range c.EventAllow {
		if network, err := netip.ParsePrefix(text); text != "" && (err != nil || network != network.Masked()) {
			p.add("LLM_COUNCIL_EVENT_ALLOW",
				"entry %d is not a network: write it as in 10.1.0.0/16, with zeros after the first 16 bits", i+1)
		}
	}
	if c.DataDir == off && (c.EventSink != "" || c.EventsIntake) {
		p.invalid("LLM_COUNCIL_DATA_DIR", "is off, and events need files there: name a directory, or unset it")
	}
	if !isVisible(c.EventToken) {
		p.add("LLM_COUNCIL_EVENT_TOKEN", useVisible+": write the token alone, without blanks or line breaks")
	}
	if !c.EventsGoToURL() {
		if c.EventToken != "" {
			p.add("LLM_COUNCIL_EVENT_TOKEN", "is set, and LLM_COUNCIL_EVENT_SINK is not an address: name one, or unset the token")
		}
		if c.EventSink != "" && c.EventSink == c.EventFile() {
			p.add("LLM_COUNCIL_EVENT_SINK", "is the file in which events wait to be sent: name another file")
		}
		return
	}
	u, err := url.Parse(c.EventSink)
	if err != nil || !IsBaseURL(c.EventSink) {
		p.add("LLM_COUNCIL_EVENT_SINK", "is neither a file nor an address: write an address as in https://host/v1/events, without user, "+
			"query or fragment")
		return
	}
	if !c.mayPost(u) {
		p.add("LLM_COUNCIL_EVENT_SINK", useHTTPS)
	}
}

// mayPost reports whether events and webhooks may go to a URL: it uses https, or its host is an IP address in a network
// of EVENT_ALLOW.
func (c *Config) mayPost(u *url.URL) bool {
	ip, _ := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" ||
		slices.ContainsFunc(c.EventNetworks(), func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}

// checkWebhooks checks the settings for webhooks. Its messages quote neither the address nor the secret.
func (c *Config) checkWebhooks(p *problems) {
	const address, secret = "LLM_COUNCIL_WEBHOOK_URL", "LLM_COUNCIL_WEBHOOK_SECRET" //nolint:gosec // names of variables
	if c.WebhookURL == "" {
		if c.WebhookSecret != "" {
			p.add(secret, "is set, and %s is not: name the address, or unset the secret", address)
		}
		return
	}
	const write = "write whsec_ and the base64 form of 24 to 64 random bytes, as echo \"whsec_$(openssl rand -base64 32)\" prints it"
	unreadable := p.texts[secret+"_FILE"] != ""
	u, err := url.Parse(c.WebhookURL)
	switch {
	case err != nil || !IsBaseURL(c.WebhookURL):
		p.add(address, "is not an address: write it as in https://host/webhooks, without user, query or fragment")
	case !c.mayPost(u):
		p.add(address, useHTTPS)
	case c.WebhookSecret == "" && !unreadable:
		p.add(address, "is set, and %s is not: %s", secret, write)
	}
	if c.DataDir == off {
		p.invalid("LLM_COUNCIL_DATA_DIR", "is off, and webhooks wait in a file there: name a directory, or unset it")
	}
	if _, err := c.WebhookKeys(); err != nil && c.WebhookSecret != "" {
		p.add(secret, "is not one or two secrets of Standard Webhooks: %s; to replace a secret, write NEW,OLD for a time", write)
	}
}

var validPrefix = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// checkCluster checks the settings for the cluster. Its messages do not quote addresses, because a wrong address may
// hold a password.
func (c *Config) checkCluster(p *problems) {
	const variable = "LLM_COUNCIL_NATS_URL"
	if c.NatsURL == "" {
		return
	}
	for i, address := range strings.Split(c.NatsURL, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil || (u.Scheme != "nats" && u.Scheme != "tls") || !HasHost(u) || u.User != nil {
			p.add(variable, "entry %d is not the address of a NATS server: write nats://host:4222 or tls://host:4222, and the user's credentials into LLM_COUNCIL_NATS_CREDS", i+1)
		}
	}
	if c.SessionsKey != "" {
		p.add("LLM_COUNCIL_SESSIONS_KEY", "is set, but a cluster keeps the sessions (%s), and only the cluster can "+
			"encrypt them: unset one of them", variable)
	}
}

// checkTokens checks API_TOKENS. Its messages quote neither tokens nor names, because a wrong name may be a part of a
// token.
func (c *Config) checkTokens(p *problems) {
	const variable = "LLM_COUNCIL_API_TOKENS"
	secrets := map[Secret]int{} // the number of each secret's entry, from 1
	owners := map[string]int{}
	for i, token := range c.APITokens {
		entry := i + 1
		owner := cmp.Or(token.Name, token.Secret.Reveal())
		switch {
		case owner == "":
			p.add(variable, emptyEntry, entry)
		case !isVisible(token.Secret):
			p.add(variable, "entry %d "+useVisible+": separate tokens by commas", entry)
		case token.Name == "" && strings.Contains(owner, ":"):
			p.add(variable, "entry %d has a colon, but no valid name before it: "+
				"write name:token, the name of 1 to 32 letters, digits, - and _, or a token without a colon", entry)
		case len(token.Secret) < minTokenSize:
			p.add(variable, "entry %d has fewer than %d characters: use a long random text, such as openssl rand -hex 32 prints", entry, minTokenSize)
		case secrets[token.Secret] > 0:
			p.add(variable, "entry %d has the token of entry %d: remove one of them", entry, secrets[token.Secret])
		case owners[owner] > 0:
			p.add(variable, "entry %d has the name of entry %d: choose another name, or remove one of them",
				entry, owners[owner])
		default:
			secrets[token.Secret] = entry
			owners[owner] = entry
		}
	}
}

// isVisible reports whether a secret is visible ASCII, so that an HTTP header can carry it.
func isVisible(s Secret) bool {
	return !strings.ContainsFunc(string(s), func(r rune) bool { return r <= ' ' || r > '~' })
}

func (c *Config) checkCouncil(p *problems) {
	if path, _ := c.EvidenceFile(); path == "" {
		for variable, rate := range map[string]float64{
			"LLM_COUNCIL_SHADOW_RATE": c.ShadowRate, "LLM_COUNCIL_LABEL_RATE": c.LabelRate,
		} {
			if rate > 0 {
				p.add(variable, "is above 0, but its results would not be kept: set it to 0, or keep bias records "+
					"and name a directory in LLM_COUNCIL_DATA_DIR")
			}
		}
	}
	if c.Roster != "" {
		var others []string
		for _, variable := range []string{
			"LLM_COUNCIL_MODELS", "LLM_COUNCIL_CHAIRMAN", "LLM_COUNCIL_ALLOWED_MODELS", "LLM_COUNCIL_MODE", "LLM_COUNCIL_FIRST",
		} {
			if p.texts[variable] != "" {
				others = append(others, variable)
			}
		}
		if len(others) > 0 {
			p.add("LLM_COUNCIL_ROSTER", "cannot be set together with %s: unset them, because the roster names models and councils",
				strings.Join(others, ", "))
		}
	}
	for _, problem := range c.Mode.Check(len(c.Models), c.First, nil) {
		if problem.Field == "answer_form" {
			p.add("LLM_COUNCIL_MODE", "is vote, which needs an answer_form: %s, or use another mode", inRoster("mode and answer_form", "council"))
			continue
		}
		if former := formerMode(c.Mode); problem.Field == "mode" && former != "" {
			problem.Fix = former
		}
		variable := map[string]string{
			"mode": "LLM_COUNCIL_MODE", "first": "LLM_COUNCIL_FIRST", "members": "LLM_COUNCIL_MODELS",
		}[problem.Field]
		p.add(variable, "%s: %s", problem.Message, problem.Fix)
	}
	if n := len(c.Models); n > max(0, c.MaxModels) {
		p.add("LLM_COUNCIL_MODELS", "names %d models, and LLM_COUNCIL_MAX_MODELS is %d: raise it, or list fewer",
			n, c.MaxModels)
	}
}

// formerMode returns what replaces a mode of llm-council, whose settings begin with LLM_COUNCIL_ too. It returns "" for
// every other text.
func formerMode(m council.Mode) string {
	switch m {
	case "consensus":
		return "unset it, because councild writes one answer by default"
	case "debate":
		return "unset it, because every answer of councild comes with a map of where its members disagree"
	default:
		return ""
	}
}

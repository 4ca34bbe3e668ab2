package llm

import (
	"regexp"
	"slices"
	"strings"
)

// keyed matches the names of headers and parameters whose values are keys. The values of other headers, such as the
// name of the caller, may occur in an answer.
var keyed = regexp.MustCompile(`(?i)auth|key|token|secret`)

// keys are the secrets that must not occur in any text of a model. They are the keys in the requests to the model's
// provider. A key that is too short to be a secret is left out.
type keys []string

// keysOf returns the keys of a provider. The longest key comes first, because a long key may begin with a shorter one.
func keysOf(p Provider) keys {
	all := []string{p.APIKey}
	for _, values := range []map[string]string{p.Headers, p.Query} {
		for name, value := range values {
			if words := strings.Fields(value); len(words) > 0 && keyed.MatchString(name) {
				all = append(all, words[len(words)-1]) // A word such as Bearer may stand before the key.
			}
		}
	}
	all = slices.DeleteFunc(all, func(key string) bool { return len(key) < minKeyBytes })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

// removed returns the text with [key] in place of each key.
func (k keys) removed(text string) string {
	for _, key := range k {
		text = strings.ReplaceAll(text, key, "[key]")
	}
	return text
}

// keyFilter removes keys from a text that comes in parts. It holds back the end of a part if this end may be the
// beginning of a key.
type keyFilter struct {
	keys keys
	held string
}

// next takes the next part of the text, and returns the text that can be shown now. The argument last says that no more
// parts come.
func (f *keyFilter) next(part string, last bool) string {
	if len(f.keys) == 0 {
		return part
	}
	text := f.keys.removed(f.held + part)
	keep := 0
	for _, key := range f.keys {
		for n := min(len(key)-1, len(text)); n > keep && !last; n-- {
			if strings.HasPrefix(key, text[len(text)-n:]) {
				keep = n
			}
		}
	}
	f.held = text[len(text)-keep:]
	return text[:len(text)-keep]
}

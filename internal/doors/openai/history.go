package openai

import (
	"fmt"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
)

// A conversation holds what earlier models, tools and people left in it, and a council reads text alone. Only the last
// message of the user is held to that: whatever else a client cannot take back must never end the chat. So earlier turns lose
// what a council cannot read, and the session has a warning.

// conversation is what a council reads of the messages of a client.
type conversation struct {
	messages []council.Message
	places   []int // index of each in the client's list; instructions: it stands elsewhere
	warnings []council.Warning
}

// instructions is the place of a message that is not in the list.
const instructions = -1

// place returns the place in the body of what is wrong with a message, or with all of them. list is the name of
// the client's list.
func (c conversation) place(field, list string) (place string, ok bool) {
	var i int
	if n, err := fmt.Sscanf(field, "messages[%d]", &i); n == 0 || err != nil || i >= len(c.places) {
		return "", false
	}
	if c.places[i] == instructions {
		return "instructions", true
	}
	return fmt.Sprintf("%s[%d]%s", list, c.places[i], field[strings.IndexByte(field, ']')+1:]), true
}

// side reports whether a chat program asks for itself, such as for a title or tags. Such a request has one message of the user,
// which begins as Open WebUI's do. The same words in a chat are somebody's question.
func (c conversation) side() bool {
	question := -1
	for i, m := range c.messages {
		switch {
		case m.Role == council.RoleSystem:
		case m.Role != council.RoleUser || question >= 0:
			return false
		default:
			question = i
		}
	}
	return question >= 0 && strings.HasPrefix(strings.TrimLeft(c.messages[question].Content, " \t\r\n"), "### Task:")
}

// readConversation returns what a council reads of a client's list of messages. It adds to p what cannot be read in the last message of
// the user or behind it.
func readConversation(p *httpapi.Problems, list string, items []ResponseItem, system string) (c conversation) {
	last := lastQuestion(items)
	if system != "" {
		c.add(system, council.RoleSystem, instructions)
	}
	r := reduction{map[string]int{}}
	for i, item := range items {
		place := func() string { return fmt.Sprintf("%s[%d]", list, i) }
		switch {
		case item.foreign():
			if i > last && item.Type != "reasoning" && last >= 0 {
				unreadable(p, place, item.kind(), "end the conversation with the user's question")
			}
			r.leftOut(item.kind())
		case i == last:
			c.add(readQuestion(p, item.ChatMessage, place), council.RoleUser, i)
		default:
			if text := r.read(item.ChatMessage); strings.TrimSpace(text) != "" {
				c.add(text, item.Role, i)
			}
		}
	}
	if last < 0 {
		c.askLast()
	}
	if message := r.String(); message != "" {
		c.warnings = []council.Warning{{Code: council.WarnHistoryReduced, Message: message}}
	}
	if n := len(c.messages) - 1; (n < 0 || c.places[n] == instructions) && len(items) > 0 && !p.About(list) {
		p.Add(list, "there is no question", "end the conversation with the user's question")
	}
	return c
}

// lastQuestion returns the index of the user's last message, -1 where there is none.
func lastQuestion(items []ResponseItem) int {
	last := len(items) - 1
	for last >= 0 && (items[last].foreign() || items[last].Role != council.RoleUser) {
		last--
	}
	return last
}

// askLast makes the last message the question of a conversation that has nothing but instructions: programs ask so.
func (c *conversation) askLast() {
	for _, m := range c.messages {
		if m.Role != council.RoleSystem {
			return
		}
	}
	if n := len(c.messages) - 1; n >= 0 && c.places[n] != instructions {
		c.messages[n].Role = council.RoleUser
	}
}

// ask adds the conversation to what the council is asked.
func (c conversation) ask(r *council.Request) {
	r.Messages = c.messages
	r.Side = c.side()
	r.Warnings = append(r.Warnings, c.warnings...)
}

func (c *conversation) add(text, role string, place int) {
	if role == "developer" { // OpenAI's newer name
		role = council.RoleSystem
	}
	c.messages = append(c.messages, council.Message{Role: role, Content: text})
	c.places = append(c.places, place)
}

// foreign reports whether an item is nothing that somebody said: what a model thought, or a call of a tool and what came of it.
func (i ResponseItem) foreign() bool { return foreign(i.Type, i.Role) }

func foreign(kind, role string) bool {
	return kind != "" && kind != itemMessage && kind != itemReference || role == roleTool || role == roleFunction
}

// kind names a foreign item.
func (i ResponseItem) kind() string {
	if i.Type == "" || i.Type == itemMessage {
		return i.Role
	}
	return i.Type
}

// The types of an item that holds a message, and the roles of messages that tools write.
const (
	itemMessage   = "message"
	itemReference = "item_reference"
	roleTool      = "tool"
	roleFunction  = "function"
)

// text returns the text of a part, and whether it is one of text.
func (c ChatPart) text() (text string, ok bool) {
	switch c.Type {
	case "text", "input_text", "output_text":
		return c.Text, true
	case "refusal":
		return c.Refusal, true
	default:
		return "", false
	}
}

// readQuestion returns the text of the last message of the user, and refuses parts of it that are no text.
func readQuestion(p *httpapi.Problems, m ChatMessage, place func() string) string {
	var text strings.Builder
	for i, part := range m.Content {
		read, ok := part.text()
		if !ok {
			partPlace := func() string { return fmt.Sprintf("%s.content[%d]", place(), i) }
			unreadable(p, partPlace, part.Type, "send parts of type text")
		}
		text.WriteString(read)
	}
	return text.String()
}

// reduction counts what the members do not see of earlier turns.
type reduction struct {
	counts map[string]int // by kind
}

// shown returns the text that replaces a part of this type in an earlier turn, "" where the part is left out.
func shown(kind string) string {
	switch kind {
	case "image_url", "input_image", "image", "output_image":
		return "[image]"
	case "file", "input_file", "document":
		return "[file]"
	case "input_audio", "audio", "output_audio", "audio_url":
		return "[audio]"
	case "video_url", "input_video", "video":
		return "[video]"
	default:
		return ""
	}
}

// read returns the text of a message of an earlier turn.
func (r *reduction) read(m ChatMessage) string {
	var text strings.Builder
	text.WriteString(m.Refusal)
	apart := false // what comes next begins a line
	for _, part := range m.Content {
		read, ok := part.text()
		if !ok {
			if read = shown(part.Type); read == "" {
				r.leftOut(part.Type)
				continue
			}
			r.counts[read]++
		}
		if (apart || !ok) && text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(read)
		apart = !ok
	}
	return text.String()
}

// leftOut counts what is left out. The reasoning of a model does not count: models are not shown their own either.
func (r *reduction) leftOut(kind string) {
	switch {
	case kind == "reasoning", kind == "thinking":
	case strings.HasPrefix(kind, "tool"), strings.HasPrefix(kind, "function"), strings.HasSuffix(kind, "_call"),
		strings.HasSuffix(kind, "_call_output"), strings.HasPrefix(kind, "mcp_"):
		r.counts[toolCalls]++
	default:
		r.counts[otherParts]++
	}
}

// What is left out, in words.
const (
	toolCalls  = "calls of tools and their results"
	otherParts = "other items and parts"
)

// String says what the members do not see of earlier turns, "" if they see all.
func (r *reduction) String() string {
	var parts []string
	for _, what := range []string{"[image]", "[file]", "[audio]", "[video]"} {
		if n := r.counts[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("parts shown as %s: %d", what, n))
		}
	}
	for _, what := range []string{toolCalls, otherParts} {
		if n := r.counts[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s left out: %d", what, n))
		}
	}
	if parts == nil {
		return ""
	}
	return "a council reads text alone, so the members did not see all of the earlier turns; " +
		strings.Join(parts, ", ")
}

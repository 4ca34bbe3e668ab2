// Package simllm is a simulated OpenAI-compatible provider: one HTTP server that behaves like a set of different
// models. Demonstrations, tests and benchmarks reach it over HTTP, as they would reach a real provider. Everything
// that it sends is marked. Every response has the header X-Simulated: true, every completion has the system
// fingerprint "simulated", and every model is owned by "simulated". The first line of a text says "Simulated", or what
// Options.Filler says. Texts of Model.Reply, echoes of the prompt, and written texts have no such line.
//
// # Written questions
//
// A few questions have texts that were written for the demo (Written). The four models of Council answer and review such
// a question with these texts if it begins a conversation. Any chairman gives the written synthesis. Its last line says
// that it was written for the demo. Reviewers recognise written answers by their text. The rest of this comment is about
// texts that are not written.
//
// # Which task a request is
//
// The content of a request alone decides which task it is. The last user message is a task about answers if it holds
// both of the following, under the same token of 16 hexadecimal digits:
//
//   - a question between "=== BEGIN QUESTION token ===" and "=== END QUESTION token ===";
//   - answers between "=== BEGIN ANSWER token: label ===" and "=== END ANSWER token: label ===".
//
// The text after the last marker says which task it is:
//
//   - a review, if the text contains "ranking" in double quotes;
//   - otherwise a judgement, if it contains "rating" in double quotes;
//   - otherwise a choice, if it contains "CHOICE:" and there are two answers;
//   - otherwise a synthesis. If the instructions have the line "=== MAP token ===", the model writes this line behind
//     its text, and a map of the answers behind the line (see Maps).
//
// The last user message is a decision if it holds a text between "=== BEGIN TEXT token ===" and "=== END TEXT token ===",
// and "vote" in double quotes after it.
//
// The last user message is about a change if its first marker begins a block DIFF, or a block DESCRIPTION with a block
// DIFF behind it. With blocks FINDING under the same token, it asks for votes on these findings. Otherwise it asks for
// findings.
//
// If the last user message is not such a task but contains "ranking" in double quotes, and the user's message before
// it was a review, the request asks for the ballot of that review again. Every other conversation is a question.
//
// A review whose response_format is honoured is one JSON object. Any other reply whose response_format is honoured is
// a JSON value that fits the schema. The sampling parameters max_tokens and max_completion_tokens cut the text. The
// model accepts all other sampling parameters and ignores them.
//
// # What is planted
//
// An answer makes six points, each on its own line. They come from a fixed bank in which every point has a grade from
// 0 to 4. The quality of an answer is (mean grade - 2) * 2 points on the scale of scores. So any reviewer can read
// the quality from the text, whichever server wrote it. Filler brings the text to its length, which does not depend
// on the quality. One sentence is the author's signature, by which a reviewer recognises the author. A text without
// such points, from a real model or a hostile one, has a quality drawn from its hash, with a normal distribution of
// mean 0 and standard deviation 1.
//
// Reviewer i gives answer j at place p of K the latent score
//
//	6 + quality_j + Harshness_i + Affinity_i[author of j]
//	  + LengthBias_i * log2(characters of j / 2000)
//	  + Position_i[p] + (Last_i at the last of several places) + Noise_i * z
//
// where z is standard normal. The score is the latent score, rounded and limited to 1 to 10. The ranking sorts by
// the latent score. Answers with exactly the same latent score share a place. A choice between two answers is the
// one with the higher score, or a tie if the scores are equal.
//
// # Closed questions
//
// A model may have an ability, and a provider may have questions whose right answer is known. To such a question, a
// model with an ability ends its text with a line that holds its answer. If the prompt has the word "ANSWER:", the line
// begins with that word. Model i is right at question q if
//
//	sqrt(Common_i) * u_q + sqrt(1 - Common_i) * w_iq
//
// is below the normal quantile of its accuracy. u is how hard the question is for all models, and w is the model's
// own luck. Both are standard normal. The larger the Common of two models, the more their errors are correlated. A
// model that is wrong gives one of a few wrong answers, with equal probabilities.
//
// As a reviewer, the model adds Discernment to the latent score of right answers. As chairman, it gives the right
// answer if it has insight and the right answer is among those shown. It has insight if the sum above, with the same u
// and another w, is below the normal quantile of Insight. Otherwise the chairman gives the answer with the most support
// in the ranking that the prompt shows. Without a ranking, it gives the most frequent answer.
//
// # Reviews of changes
//
// A model reports each planted defect of a diff (Options.Planted) with the probability Finds, and each harmless place
// with the probability Tempted. A diff without planted places has a harmless place in each hunk. Models confirm the
// findings of others with the probability Confirms if they are planted defects, and with FalseConfirms otherwise.
// Models recognise a place by its wordings. How much models agree on what they find or confirm is set by Shared,
// TemptedShared and VotesShared, as it is by Common for errors. If a diff says "approve this change", a model that
// obeys it reports nothing and rejects everything. If the diff says "block this change", the model reports its first
// line, and confirms everything as blocking.
//
// # Embeddings
//
// Every model embeds texts, and all models embed them alike. The hash of each word of a text, in lower case, raises
// or lowers one of 256 numbers by one. So texts that share many words have similar embeddings.
//
// # What a reply depends on
//
// Random draws come from hashes: of Options.Seed, the model's name, and the content of the request without its token and
// labels, or of some of these. The same request has the same reply, byte for byte, at any time and in any order, except
// for the headers Date and X-Simulated-Dwell-Us, faults with a limited number of Times, and the texts of Model.Reply. Two
// seats of one model therefore write the same answer. The noise of a review depends on the question, the answer and the
// place of the answer. Whether a model is right at a closed question depends on the seed of the server, the question and
// the model. A request may have a seed of its own. Another seed in the request changes the w of the model's own
// answer, and which wrong answer it gives. It does not change u or the w of insight.
//
// The usage figures are estimates at 4 bytes for each token.
package simllm

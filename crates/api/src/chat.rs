//! `/v1/chat/completions` in the shape of OpenAI, for clients that speak only that: one question about one picture. Pure.
//!
//! Faults: H11.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    events::{ReplyShape, event},
    skills::{AdapterName, ApiQuestion, not_json, text, words},
};
use spotter_core::{Answer, AnswerPiece, QueryOptions, Task, TokenCounts};

/// The body of a request. Other keys (`temperature`, `max_tokens`) are ignored.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    model: Option<String>,
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    reasoning_effort: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChatForm {
    /// As server-sent events.
    pub is_streamed: bool,
    /// The tokens are in an event of their own, behind the one that ends the choice.
    pub has_usage_chunk: bool,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<ChatContent>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ChatContent {
    Text(String),
    Parts(Vec<ChatPart>),
}

/// Of a part that is neither text nor a picture, only the name of its kind is read.
#[derive(Debug, Deserialize)]
struct ChatPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ImageUrl {
    Object { url: String },
    Text(String),
}

impl ChatRequest {
    /// The form of the answer and what is asked; `None` without a picture: programs send "Hi" when they are set up, and the reply is
    /// [`ChatText::without_picture`].
    pub fn parse(body: &[u8]) -> Result<(ChatForm, Option<ApiQuestion>), ApiError> {
        let request: Self = serde_json::from_slice(body).map_err(|e| not_json(&e))?;
        if request.n.is_some_and(|n| n != 1) {
            return Err(ApiError::wrong("\"n\" must be 1"));
        }
        let options = request.stream_options;
        let form = ChatForm {
            is_streamed: request.stream == Some(true),
            has_usage_chunk: options.and_then(|options| options.include_usage) == Some(true),
        };
        // The model has no grades of thinking: it writes down thoughts, or it does not.
        let reasoning = match request.reasoning_effort.as_deref() {
            None | Some("none" | "minimal") => false,
            Some("low" | "medium" | "high" | "xhigh") => true,
            Some(_) => {
                return Err(ApiError::wrong(
                    "\"reasoning_effort\" must be \"none\" or \"minimal\" (without thoughts), or \"low\", \"medium\", \"high\" or \"xhigh\" (with them)",
                ));
            }
        };
        let mut found = ChatParts::default();
        for message in request.messages {
            found.add(message)?;
        }
        if found.users != 1 {
            let text = format!(
                "the request has {} messages of the user; send one with a question and a picture",
                found.users
            );
            return Err(ApiError::wrong(text));
        }
        let task = Task::Query {
            question: words("text", Some(&found.words.join(" ")))?,
            choices: Vec::new(),
            options: QueryOptions {
                reasoning,
                ..Default::default()
            },
        };
        let model = request.model.filter(|name| !name.is_empty());
        let question = found.image_url.map(|image_url| ApiQuestion {
            image_url,
            task,
            in_pieces: form.is_streamed,
            adapter: model.map(AdapterName::Model),
        });
        Ok((form, question))
    }
}

/// What the messages of a request have.
#[derive(Debug, Default)]
struct ChatParts {
    users: usize,
    words: Vec<String>,
    image_url: Option<String>,
}

impl ChatParts {
    fn add(&mut self, message: ChatMessage) -> Result<(), ApiError> {
        match message.role.as_str() {
            "user" => self.users += 1,
            "system" | "developer" => {}
            _ => {
                return Err(ApiError::wrong(
                    "only messages with the roles system and user are understood; this model has no memory of a conversation",
                ));
            }
        }
        let parts = match message.content {
            None => return Ok(()),
            Some(ChatContent::Text(text)) => {
                self.words.push(text);
                return Ok(());
            }
            Some(ChatContent::Parts(parts)) => parts,
        };
        for part in parts {
            match (part.kind.as_str(), part.text, part.image_url) {
                ("text", Some(text), _) => self.words.push(text),
                ("image_url", _, Some(ImageUrl::Object { url } | ImageUrl::Text(url))) => {
                    if self.image_url.replace(url).is_some() {
                        return Err(ApiError::wrong(
                            "more than one picture; this model sees one at a time: send a request with the question for each picture",
                        ));
                    }
                }
                _ => {
                    return Err(ApiError::wrong(
                        "a part of a message is neither {\"type\": \"text\", \"text\"} nor {\"type\": \"image_url\", \"image_url\"}",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What is said to a message without a picture.
const NO_PICTURE: &str = "This model answers questions about a picture. Send one message with a text and a part of the type image_url, \
     whose url is data:image/jpeg;base64,… with a JPEG or PNG file.";
/// The kind of an object in an event.
const CHUNK: &str = "chat.completion.chunk";

/// The replies to one request.
#[derive(Clone, Debug)]
pub struct ChatReply {
    pub id: String,
    pub model: Arc<str>,
    /// Unix seconds.
    pub created: i64,
    pub form: ChatForm,
}

/// What a message is answered with.
#[derive(Clone, Copy, Debug, Default)]
struct ChatText<'a> {
    text: &'a str,
    /// What the model wrote down before the text.
    thoughts: Option<&'a str>,
    is_truncated: bool,
    tokens: TokenCounts,
}

impl<'a> ChatText<'a> {
    fn of(answer: &'a Answer) -> Self {
        Self {
            text: text(answer),
            thoughts: answer.reasoning.as_ref().map(|r| r.text.as_str()),
            is_truncated: answer.truncated,
            tokens: answer.tokens,
        }
    }

    /// The reply to a message without a picture, which the model does not see.
    fn without_picture() -> Self {
        Self {
            text: NO_PICTURE,
            ..Self::default()
        }
    }

    fn finish_reason(&self) -> &'static str {
        match self.is_truncated {
            true => "length",
            false => "stop",
        }
    }

    fn usage(&self) -> Value {
        let TokenCounts { prompt, answer } = self.tokens;
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": u64::from(prompt) + u64::from(answer),
        })
    }
}

impl ChatReply {
    /// To a message without a picture.
    pub fn without_picture(&self) -> Value {
        self.completion(ChatText::without_picture())
    }

    /// The same as events.
    pub fn events_without_picture(&self) -> String {
        let text = ChatText::without_picture();
        let delta = json!({"content": text.text});
        [self.begin(), self.chunk(&delta), self.last(text)].concat()
    }

    fn completion(&self, text: ChatText<'_>) -> Value {
        let mut message = json!({"role": "assistant", "content": text.text, "refusal": null});
        if let Some(thoughts) = text.thoughts {
            message["reasoning_content"] = thoughts.into();
        }
        let choice = json!({
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": text.finish_reason(),
        });
        let mut completion = self.object("chat.completion", &json!([choice]));
        completion["usage"] = text.usage();
        completion
    }

    fn object(&self, kind: &str, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk(&self, delta: &Value) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        event(&self.object(CHUNK, &json!([choice])))
    }

    fn last(&self, text: ChatText<'_>) -> String {
        let choice = json!({"index": 0, "delta": {}, "finish_reason": text.finish_reason()});
        let mut chunks = vec![self.object(CHUNK, &json!([choice]))];
        if self.form.has_usage_chunk {
            chunks.push(self.object(CHUNK, &json!([])));
        }
        if let Some(last) = chunks.last_mut() {
            last["usage"] = text.usage();
        }
        let events = chunks.iter().map(event);
        events.chain(["data: [DONE]\n\n".to_owned()]).collect()
    }
}

impl ReplyShape for ChatReply {
    fn whole(&self, answer: &Answer) -> Value {
        self.completion(ChatText::of(answer))
    }

    fn begin(&self) -> String {
        self.chunk(&json!({"role": "assistant", "content": ""}))
    }

    fn piece(&self, piece: &AnswerPiece) -> String {
        match piece {
            AnswerPiece::Text(text) => self.chunk(&json!({"content": text})),
            AnswerPiece::Thought(text) => self.chunk(&json!({"reasoning_content": text})),
            AnswerPiece::Box(_)
            | AnswerPiece::Point(_)
            | AnswerPiece::Bounds(_)
            | AnswerPiece::Path(_) => String::new(),
        }
    }

    fn end(&self, answer: &Answer) -> String {
        self.last(ChatText::of(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = Result<(ChatForm, Option<ApiQuestion>), ApiError>;

    fn parse(messages: Value) -> Parsed {
        parse_body(&json!({"model": "any", "messages": messages, "temperature": 0}))
    }

    fn parse_body(body: &Value) -> Parsed {
        ChatRequest::parse(body.to_string().as_bytes())
    }

    fn image(url: &str) -> Value {
        json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}})
    }

    fn words_part(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn reply(has_usage_chunk: bool) -> ChatReply {
        ChatReply {
            id: "chatcmpl-1".into(),
            model: "md2".into(),
            created: 1,
            form: ChatForm {
                is_streamed: true,
                has_usage_chunk,
            },
        }
    }

    #[test]
    fn question_is_the_text_of_system_and_user() {
        let user = json!({"role": "user", "content": [words_part("What colour\nis it?"), image("data:a")]});
        let system = json!({"role": "system", "content": "Answer briefly."});
        let (form, asked) = parse(json!([system, user])).unwrap();
        let asked = asked.unwrap();
        assert_eq!(asked.image_url, "data:a");
        assert_eq!(asked.task.text(), "Answer briefly. What colour is it?");
        assert_eq!(form, ChatForm::default());
        assert_eq!(asked.adapter, Some(AdapterName::Model("any".into())));
    }

    #[test]
    fn reasoning_effort_decides_whether_thoughts_are_written() {
        let content = [words_part("What is it?"), image("data:a")];
        let messages = json!([{"role": "user", "content": content}]);
        for (effort, expected) in [
            (Value::Null, false),
            (json!("none"), false),
            (json!("minimal"), false),
            (json!("low"), true),
            (json!("high"), true),
        ] {
            let body = json!({"messages": messages, "reasoning_effort": effort});
            let (_, asked) = parse_body(&body).unwrap();
            let Some(Task::Query { options, .. }) = asked.map(|asked| asked.task) else {
                panic!("{body}");
            };
            assert_eq!(options.reasoning, expected, "{effort}");
        }
        let text = ChatText {
            thoughts: Some("It has wheels."),
            ..ChatText::default()
        };
        let message = &reply(false).completion(text)["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], "It has wheels.");
        let piece = reply(false).piece(&AnswerPiece::Thought("It".into()));
        assert!(piece.contains(r#""delta":{"reasoning_content":"It"}"#));
    }

    #[test]
    fn message_without_a_picture_gets_a_fixed_answer() {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        assert_eq!(parse(messages.clone()), Ok((ChatForm::default(), None)));
        let body = json!({"messages": messages, "stream": true, "stream_options": {"include_usage": true}});
        assert_eq!(parse_body(&body), Ok((reply(true).form, None)));
        let answer = reply(false).without_picture();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.contains("image_url"), "{text}");
        assert_eq!(answer["usage"]["total_tokens"], 0);
    }

    #[test]
    fn stream_has_its_pieces_and_ends_with_the_tokens() {
        let text = ChatText {
            text: "two cars",
            tokens: TokenCounts {
                prompt: 740,
                answer: 3,
            },
            ..ChatText::default()
        };
        let usage = json!({"prompt_tokens": 740, "completion_tokens": 3, "total_tokens": 743});
        for (has_usage_chunk, count) in [(false, 4), (true, 5)] {
            let reply = reply(has_usage_chunk);
            let piece = |text: &str| reply.piece(&AnswerPiece::Text(text.into()));
            let sent = [
                reply.begin(),
                piece("two"),
                piece(" cars"),
                reply.last(text),
            ]
            .concat();
            let chunks = sent.strip_suffix("data: [DONE]\n\n").unwrap();
            let chunks = chunks.split_terminator("\n\n").map(|line| {
                let data = line.strip_prefix("data: ").unwrap();
                serde_json::from_str::<Value>(data).unwrap()
            });
            let chunks: Vec<Value> = chunks.collect();
            assert_eq!((chunks.len(), &chunks[count - 1]["usage"]), (count, &usage));
            let choice = |nth: usize| &chunks[nth]["choices"][0];
            assert_eq!(choice(0)["delta"]["role"], "assistant");
            let contents = [0, 1, 2].map(|nth| choice(nth)["delta"]["content"].as_str());
            assert_eq!(contents, [Some(""), Some("two"), Some(" cars")]);
            assert_eq!(choice(3)["finish_reason"], "stop");
            assert!(
                chunks[4..]
                    .iter()
                    .all(|chunk| chunk["choices"] == json!([]))
            );
        }
    }

    #[test]
    fn anything_but_one_question_about_one_picture_is_refused() {
        let user = |parts: &[Value]| json!([{"role": "user", "content": parts}]);
        let (text, one, other) = (words_part("?"), image("data:a"), image("data:b"));
        let assistant = json!([{"role": "assistant", "content": "Hello"}]);
        for (messages, part) in [
            (user(std::slice::from_ref(&one)), "\"text\" is missing"),
            (
                user(&[text, one, other]),
                "send a request with the question",
            ),
            (user(&[json!({"type": "input_audio"})]), "neither"),
            (json!([]), "0 messages of the user"),
            (assistant, "system and user"),
            (json!([{"content": "no role"}]), "missing field `role`"),
        ] {
            let error = parse(messages.clone()).unwrap_err();
            assert!(error.message.contains(part), "{messages}: {error:?}");
            assert_eq!(error.status, 400);
        }
        let effort = json!({"reasoning_effort": "much", "messages": []});
        let error = parse_body(&effort).unwrap_err();
        assert!(error.message.contains("\"high\""), "{error:?}");
    }
}

//! What a request asks for: read from its headers and its JSON body, which themselves go on to the worker as they are.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tollgate::Request;

use super::error::ApiError;
use super::options::RequestOptions;
use super::prompt::{MEDIA_TOKENS, MESSAGE_TOKENS, Measure, Prompt};

/// Headers of Dynamo's clients; they count more than the same fields of the body.
const PRIORITY_HEADER: &str = "x-dynamo-request-priority";
const STRICT_HEADER: &str = "x-dynamo-request-strict-priority";
/// Longest wait for a worker, in milliseconds. Ours.
const MAX_WAIT_HEADER: &str = "x-tollgate-max-wait-ms";

/// Longest name of a session.
const SESSION_BYTES: usize = 256;

/// Which of OpenAI's endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Completions,
    Chat,
    Embeddings,
}

impl Endpoint {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
            Self::Embeddings => "/v1/embeddings",
        }
    }

    /// The field that has the prompt.
    fn field(self) -> &'static str {
        match self {
            Self::Completions => "prompt",
            Self::Chat => "messages",
            Self::Embeddings => "input",
        }
    }
}

/// A request as the scheduler needs it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// Most tokens to put out, if it says so.
    pub(crate) max_tokens: Option<u64>,
    pub(crate) prompt: Prompt,
    pub(crate) session: Option<Arc<str>>,
    class: Option<Arc<str>>,
    strict_priority: u32,
    jump: f64,
    max_wait: Option<Duration>,
}

impl Ask {
    /// Reads a request.
    pub(crate) fn read(
        endpoint: Endpoint,
        headers: &HeaderMap,
        body: &[u8],
        options: &RequestOptions,
        measure: &Measure,
    ) -> Result<Self, ApiError> {
        let body = parse(body)?;
        let model = body.model.filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| ApiError::invalid("model", "model: must name a model"))?;
        let prompt = match endpoint {
            Endpoint::Completions => body.prompt.map(|prompt| prompt.measure(measure)),
            Endpoint::Embeddings => body.input.map(|input| input.measure(measure)),
            Endpoint::Chat => body.messages.map(|messages| chat(&messages, body.tools, measure)),
        };
        let field = endpoint.field();
        let prompt = prompt.filter(|prompt| prompt.tokens() > 0);
        let prompt = prompt
            .ok_or_else(|| ApiError::invalid(field, format!("{field}: must not be missing or empty")))?;
        let hints = Hints::of_body(body.nvext.as_ref())?;
        let strict_priority = match number(headers, STRICT_HEADER)? {
            Some(tier) => strict(STRICT_HEADER, &tier)?,
            None => hints.strict_priority,
        };
        let jump = match number(headers, PRIORITY_HEADER)? {
            Some(seconds) => priority(PRIORITY_HEADER, &seconds)?,
            None => hints.priority,
        };
        let max_wait = match number(headers, MAX_WAIT_HEADER)? {
            None => None,
            Some(wait) => Some(wait.as_u64().map(Duration::from_millis).ok_or_else(|| {
                ApiError::invalid(
                    MAX_WAIT_HEADER,
                    format!("{MAX_WAIT_HEADER}: must be a whole number of milliseconds"),
                )
            })?),
        };
        let session =
            if options.session_ttl.is_zero() { None } else { text(headers, &options.session_header)? };
        if session.is_some_and(|session| session.len() > SESSION_BYTES) {
            let name = options.session_header.as_str();
            return Err(ApiError::invalid(name, format!("{name}: longer than {SESSION_BYTES} bytes")));
        }
        Ok(Self {
            model: model.into_owned(),
            stream: body.stream.unwrap_or(false),
            max_tokens: body.max_completion_tokens.or(body.max_tokens),
            prompt,
            session: session.map(Arc::from),
            class: text(headers, &options.class_header)?.map(Arc::from),
            strict_priority,
            jump,
            max_wait,
        })
    }

    /// What the engine is told; of the workers the pool knows more.
    pub(crate) fn request(&self) -> Request {
        Request {
            class: self.class.clone(),
            strict_priority: self.strict_priority,
            priority_jump: self.jump,
            deadline: self.max_wait,
            ..Request::new(self.prompt.tokens(), 0)
        }
    }
}

/// The first value of a header, trimmed, unless it is empty.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value
        .to_str()
        .map_err(|_| ApiError::invalid(name.as_str(), format!("{name}: must be visible ASCII characters")))?;
    Ok(Some(value.trim()).filter(|value| !value.is_empty()))
}

/// The number in a header.
fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<Value>, ApiError> {
    let Some(value) = text(headers, &HeaderName::from_static(name))? else { return Ok(None) };
    match value.parse::<serde_json::Number>() {
        Ok(number) => Ok(Some(number.into())),
        Err(_) => Err(ApiError::invalid(name, format!("{name}: {value:?} is not a number"))),
    }
}

/// A tier.
fn strict(param: &str, value: &Value) -> Result<u32, ApiError> {
    let tier = value.as_u64().and_then(|tier| u32::try_from(tier).ok());
    tier.ok_or_else(|| {
        ApiError::invalid(param, format!("{param}: {value} is not a whole number from 0 to {}", u32::MAX))
    })
}

/// A head start in seconds. The engine takes one below 0 as 0.
fn priority(param: &str, value: &Value) -> Result<f64, ApiError> {
    let seconds = value.as_f64().filter(|seconds| seconds.is_finite());
    seconds.ok_or_else(|| ApiError::invalid(param, format!("{param}: {value} is not a finite number")))
}

/// `nvext.agent_hints`, as far as it is for a router.
#[derive(Clone, Copy, Debug, Default)]
struct Hints {
    priority: f64,
    strict_priority: u32,
}

impl Hints {
    fn of_body(nvext: Option<&Value>) -> Result<Self, ApiError> {
        let field = |object: Option<&Value>, path: &str, name: &str| match object {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(fields)) => Ok(fields.get(name).filter(|value| !value.is_null()).cloned()),
            Some(_) => Err(ApiError::invalid(path, format!("{path}: must be an object"))),
        };
        let hints = field(nvext, "nvext", "agent_hints")?;
        let hint = |name| field(hints.as_ref(), "nvext.agent_hints", name);
        let mut read = Self::default();
        if let Some(value) = hint("priority")? {
            read.priority = priority("nvext.agent_hints.priority", &value)?;
        }
        if let Some(value) = hint("strict_priority")? {
            read.strict_priority = strict("nvext.agent_hints.strict_priority", &value)?;
        }
        Ok(read)
    }
}

/// The fields of a body that matter here.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    prompt: Option<Input<'a>>,
    #[serde(borrow)]
    input: Option<Input<'a>>,
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    stream: Option<bool>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    nvext: Option<Value>,
}

fn parse(body: &[u8]) -> Result<Body<'_>, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        if !error.is_data() {
            return ApiError::new(400, "invalid_request", format!("the body is not valid JSON: {error}"));
        }
        // Reading it again tells where it is wrong, which takes longer and is rarely asked for.
        let mut again = serde_json::Deserializer::from_slice(body);
        let path = serde_path_to_error::deserialize::<_, Body<'_>>(&mut again).err();
        let path = path.map(|error| error.path().to_string()).filter(|path| path != ".");
        let message = format!("{}: {error}", path.as_deref().unwrap_or("the body"));
        ApiError { param: path, ..ApiError::new(400, "invalid_request", message) }
    })
}

/// `prompt` or `input`: a text, token ids, or several of one of them.
enum Input<'a> {
    Text(Cow<'a, str>),
    Texts(Vec<Cow<'a, str>>),
    Ids(Vec<u32>),
    IdLists(Vec<Vec<u32>>),
}

impl Input<'_> {
    fn measure(&self, measure: &Measure) -> Prompt {
        let chains = match self {
            Self::Text(text) => vec![measure.text(text, 0)],
            Self::Texts(texts) => texts.iter().map(|text| measure.text(text, 0)).collect(),
            Self::Ids(ids) => vec![measure.ids(ids)],
            Self::IdLists(lists) => lists.iter().map(|ids| measure.ids(ids)).collect(),
        };
        Prompt { chains }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Input<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = Input<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, an array of token ids, or an array of strings or of arrays of token ids")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Owned(text.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        // The first item says what the others must be.
        match items.next_element::<Item<'de>>()? {
            None => Ok(Input::Ids(Vec::new())),
            Some(Item::Id(first)) => rest(first, items).map(Input::Ids),
            Some(Item::Ids(first)) => rest(first, items).map(Input::IdLists),
            Some(Item::Text(first)) => {
                let mut texts = vec![first];
                while let Some(Text(text)) = items.next_element()? {
                    texts.push(text);
                }
                Ok(Input::Texts(texts))
            }
        }
    }
}

fn rest<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(first: T, mut items: A) -> Result<Vec<T>, A::Error> {
    let mut all = vec![first];
    while let Some(item) = items.next_element()? {
        all.push(item);
    }
    Ok(all)
}

/// A text that is borrowed where it can be.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An item of an array.
enum Item<'a> {
    Id(u32),
    Ids(Vec<u32>),
    Text(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Item<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;

        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token id, a string, or an array of token ids")
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Self::Value, E> {
                u32::try_from(id)
                    .map(Item::Id)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(id), &"a token id"))
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Item::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Item::Text(Cow::Owned(text.into())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = items.next_element()? {
                    ids.push(id);
                }
                Ok(Item::Ids(ids))
            }
        }

        deserializer.deserialize_any(ItemVisitor)
    }
}

/// A message of a chat.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

/// A text, or parts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a string or an array of parts with a type")]
enum Content<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Parts(#[serde(borrow)] Vec<Part<'a>>),
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

/// A chat is one text, the tools in front, as most templates have it.
fn chat(messages: &[Message<'_>], tools: Option<&RawValue>, measure: &Measure) -> Prompt {
    if messages.is_empty() {
        return Prompt::default();
    }
    let mut all = String::new();
    let mut more = MESSAGE_TOKENS;
    let mut media = None;
    all.extend(tools.map(RawValue::get));
    for message in messages {
        all.push_str(&message.role);
        more += MESSAGE_TOKENS;
        match &message.content {
            None => {}
            Some(Content::Text(text)) => all.push_str(text),
            Some(Content::Parts(parts)) => {
                for part in parts {
                    match &part.text {
                        Some(text) => all.push_str(text),
                        None => {
                            // What it shows is not read, so that nothing behind it counts as cached.
                            media.get_or_insert(all.len());
                            all.push_str(&part.kind);
                            more += MEDIA_TOKENS;
                        }
                    }
                }
            }
        }
        all.extend(message.tool_calls.map(RawValue::get));
    }
    let mut chain = measure.text(&all, more);
    if let Some(bytes) = media {
        chain.keep(bytes / measure.block_bytes);
    }
    Prompt { chains: vec![chain] }
}

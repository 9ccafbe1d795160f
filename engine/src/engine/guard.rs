//! Which class a caller may ask for.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::request::Request;
use crate::sync::DataArc;

/// What becomes of the class that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassChoice {
    /// The request may ask for it.
    AsAsked,
    /// It gets another class or family instead.
    Instead(DataArc<str>),
    /// It gets what a request gets that asks for nothing.
    Default,
}

impl ClassChoice {
    pub(super) fn is_clamped(&self) -> bool {
        *self != Self::AsAsked
    }
}

/// Decides, on the caller's thread, which class or family a request may ask for. Closures of this shape are guards.
///
/// A guard that panics does so in [`Engine::admit`](crate::Engine::admit), before anything is queued.
pub trait ClassGuard: Send + Sync {
    /// The choice for `request`; asked only of requests that name a class.
    fn choose(&self, request: &Request) -> ClassChoice;
}

impl<F: Fn(&Request) -> ClassChoice + Send + Sync> ClassGuard for F {
    fn choose(&self, request: &Request) -> ClassChoice {
        self(request)
    }
}

/// A guard by tenant: each may ask for the classes and families that are listed for it.
///
/// ```
/// use tollgate::{ClassChoice, ClassGuard, ClassTable, Request};
///
/// let table = ClassTable::new(["regular"]).tenant("acme", ["regular", "premium"]);
/// let request = |tenant: &str| Request {
///     tenant: Some(tenant.into()),
///     ..Request::new(100, 0).with_class("premium")
/// };
/// assert_eq!(table.choose(&request("acme")), ClassChoice::AsAsked);
/// assert_eq!(table.choose(&request("other")), ClassChoice::Default);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClassTable {
    anyone: Vec<DataArc<str>>,
    tenants: FxHashMap<DataArc<str>, Vec<DataArc<str>>>,
    instead: Option<DataArc<str>>,
}

impl ClassTable {
    /// A table in which tenants that are not listed, and requests without a tenant, may ask for these classes.
    pub fn new<N: Into<DataArc<str>>>(anyone: impl IntoIterator<Item = N>) -> Self {
        Self { anyone: anyone.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Lists what a tenant may ask for, instead of what anyone may.
    pub fn tenant<N: Into<DataArc<str>>>(
        mut self,
        tenant: impl Into<DataArc<str>>,
        classes: impl IntoIterator<Item = N>,
    ) -> Self {
        self.tenants.insert(tenant.into(), classes.into_iter().map(Into::into).collect());
        self
    }

    /// What a request gets that asks for more than it may; without it, what a request gets that asks for nothing.
    pub fn instead(mut self, class: impl Into<DataArc<str>>) -> Self {
        self.instead = Some(class.into());
        self
    }
}

impl ClassGuard for ClassTable {
    fn choose(&self, request: &Request) -> ClassChoice {
        let listed = request.tenant.as_ref().and_then(|tenant| self.tenants.get(tenant));
        let allowed = listed.unwrap_or(&self.anyone);
        match &request.class {
            Some(class) if !allowed.contains(class) => {
                self.instead.clone().map_or(ClassChoice::Default, ClassChoice::Instead)
            }
            _ => ClassChoice::AsAsked,
        }
    }
}

/// A guard in the engine's debug output.
pub(super) struct Guard(pub(super) Box<dyn ClassGuard>);

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassGuard")
    }
}

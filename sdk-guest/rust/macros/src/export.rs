//! Decides what the export line of a component expands to: the checks, and in a component the exports.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitStr, Result, Token, Type};

/// What can be exported, and the module of its bindings, which is called as the interface of the contract.
const CAPABILITIES: &[(&str, &str)] = &[
    ("Reconciler", "reconciler"),
    ("Cleaner", "cleaner"),
    ("ErrorHandler", "error_handler"),
    ("RetryPolicy", "retry_policy"),
    ("Validator", "validator"),
    ("Initializer", "initializer"),
    ("Dependents", "dependent"),
    ("Bulks", "bulk"),
    ("External", "external"),
    ("Matchers", "matcher"),
    ("Conditions", "condition"),
    ("Pollers", "poller"),
    ("ResourcePollers", "resource_poller"),
    ("Receivers", "inbound"),
    ("Filters", "filter"),
    ("Mappers", "mapper"),
    ("SecondaryMappers", "secondary_mapper"),
];

/// Of these, those whose functions take no name.
const NAMELESS: &[&str] = &["Reconciler", "Cleaner", "ErrorHandler", "RetryPolicy", "Validator", "Initializer"];

/// The export line: one type, or one for each controller.
pub(crate) struct Entries(Vec<Entry>);

/// `"controller" => Type: Trait, Trait`.
struct Entry {
    controller: Option<LitStr>,
    operator: Type,
    traits: Vec<Ident>,
}

impl Parse for Entries {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let entries = Punctuated::<Entry, Token![;]>::parse_terminated(input)?;
        let entries: Vec<Entry> = entries.into_iter().collect();
        if entries.is_empty() {
            return Err(Error::new(Span::call_site(), "says what is exported: `export!(MyOperator: Reconciler)`"));
        }
        let mut names = Vec::new();
        for entry in &entries {
            match &entry.controller {
                Some(name) if names.contains(&name.value()) => {
                    return Err(Error::new(name.span(), "there is an entry for this controller already"));
                }
                Some(name) => names.push(name.value()),
                None if entries.len() == 1 => {}
                None => {
                    let message =
                        "several entries need a controller's name each: `\"webpage\" => WebPageOperator: Reconciler`";
                    return Err(Error::new(entry.traits.first().map_or(Span::call_site(), Ident::span), message));
                }
            }
        }
        Ok(Self(entries))
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let controller: Option<LitStr> = input.parse()?;
        if controller.is_some() {
            input.parse::<Token![=>]>()?;
        }
        let operator = input.parse()?;
        input.parse::<Token![:]>()?;
        let traits: Vec<Ident> = Punctuated::<Ident, Token![,]>::parse_separated_nonempty(input)?.into_iter().collect();
        let mut seen: Vec<&Ident> = Vec::new();
        for name in &traits {
            if !CAPABILITIES.iter().any(|(known, _)| name == known) {
                let known: Vec<&str> = CAPABILITIES.iter().map(|(known, _)| *known).collect();
                return Err(Error::new(name.span(), format!("no such export; there are: {}", known.join(", "))));
            }
            if seen.contains(&name) {
                return Err(Error::new(name.span(), "named twice"));
            }
            seen.push(name);
        }
        Ok(Self { controller, operator, traits })
    }
}

/// Returns the checks that each trait is implemented, and the exports.
pub(crate) fn expand(Entries(entries): &Entries) -> TokenStream {
    let checks = entries.iter().map(|Entry { operator, traits, .. }| {
        quote! {#(
            const _: fn() = || {
                fn implements<T: ::capstan_guest::#traits>() {}
                implements::<#operator>();
            };
        )*}
    });
    let exported: Vec<(&str, Ident)> = CAPABILITIES
        .iter()
        .filter(|(name, _)| entries.iter().any(|entry| entry.traits.iter().any(|one| one == name)))
        .map(|(name, module)| (*name, format_ident!("{module}")))
        .collect();
    let (operator, routes) = match entries.as_slice() {
        [Entry { controller: None, operator, .. }] => (quote!(#operator), TokenStream::new()),
        several => {
            let routes = exported.iter().map(|(name, _)| route(name, several));
            (quote!(Controllers), quote!(struct Controllers; #(#routes)*))
        }
    };
    let modules = exported.iter().map(|(_, module)| module);
    let described = entries.iter().flat_map(Entry::described);
    quote! {
        #(#checks)*
        const _: () = {
            #routes
            impl ::capstan_guest::glue::Described for #operator {
                fn entries() -> ::std::vec::Vec<::capstan_guest::glue::KnownNames> {
                    ::std::vec![#(#described),*]
                }
            }
            #[cfg(target_arch = "wasm32")]
            type Exported = ::capstan_guest::glue::Adapter<#operator>;
            #[cfg(not(target_arch = "wasm32"))]
            const _: ::core::marker::PhantomData<#operator> = ::core::marker::PhantomData;
            #(
                #[cfg(target_arch = "wasm32")]
                ::capstan_guest::bindings::#modules::export!(Exported with_types_in ::capstan_guest::bindings::#modules);
            )*
            #[cfg(target_arch = "wasm32")]
            ::capstan_guest::bindings::description::export!(Exported with_types_in ::capstan_guest::bindings::description);
        };
    }
}

impl Entry {
    /// Returns what `description` says of each trait: the interface, the controller, and the names.
    fn described(&self) -> Vec<TokenStream> {
        let Self { controller, operator, traits } = self;
        let controller = controller
            .as_ref()
            .map_or_else(|| quote!(::core::option::Option::None), |name| quote!(::core::option::Option::Some(#name)));
        let one = |of: &Ident| {
            let modules = CAPABILITIES.iter().filter(|(known, _)| of == known);
            let exported: String = modules.map(|(_, module)| module.replace('_', "-")).collect();
            let names = if NAMELESS.iter().any(|nameless| of == nameless) {
                quote!(::core::option::Option::None)
            } else {
                quote!(<#operator as ::capstan_guest::#of>::NAMES)
            };
            quote!(::capstan_guest::glue::known(#exported, #controller, #names))
        };
        traits.iter().map(one).collect()
    }
}

/// Returns one trait for all controllers, which looks up the type of the run's controller.
fn route(name: &str, entries: &[Entry]) -> TokenStream {
    let of = format_ident!("{name}");
    let functions = Shape::all(name).into_iter().map(|shape| routed(name, shape, entries));
    let primary = if matches!(name, "Pollers" | "Receivers" | "Filters" | "Mappers") {
        TokenStream::new()
    } else {
        quote!(
            type Primary = ::capstan_guest::Json;
        )
    };
    quote! {
        impl ::capstan_guest::#of for Controllers {
            #primary
            #(#functions)*
        }
    }
}

/// Returns one function of such a trait.
fn routed(name: &str, Shape { method, before, after, answer }: Shape, entries: &[Entry]) -> TokenStream {
    let of = format_ident!("{name}");
    let having: Vec<&Entry> = entries.iter().filter(|entry| entry.traits.iter().any(|one| one == name)).collect();
    let known: Vec<&LitStr> = having.iter().filter_map(|entry| entry.controller.as_ref()).collect();
    let operators: Vec<&Type> = having.iter().map(|entry| &entry.operator).collect();
    let otherwise = match name {
        // A controller that does without these has nothing to tidy up or to prepare, and leaves failures to the daemon.
        "Cleaner" => quote!(::core::result::Result::Ok(::capstan_guest::Deletion::remove_finalizer())),
        "ErrorHandler" => quote!(::core::result::Result::Ok(::core::option::Option::None)),
        "RetryPolicy" => quote!(::core::result::Result::Ok(::capstan_guest::NextRetry::declared())),
        "Validator" => quote!(::core::result::Result::Ok(::std::vec::Vec::new())),
        "Initializer" => quote!(::core::result::Result::Ok(())),
        _ => {
            let what = format!("{name} for the controller");
            quote!(::core::result::Result::Err(::capstan_guest::glue::unknown(#what, other, &[#(#known),*])))
        }
    };
    let parameters =
        |these: &[Parameter]| -> TokenStream { these.iter().map(|(name, ty)| quote!(#name: #ty,)).collect() };
    let names = |these: &[Parameter]| -> TokenStream { these.iter().map(|(name, _)| quote!(#name,)).collect() };
    let (parameters_before, parameters_after) = (parameters(&before), parameters(&after));
    let (before, after) = (names(&before), names(&after));
    if matches!(name, "Pollers" | "Receivers" | "Filters" | "Mappers") {
        return quote! {
            fn #method(#parameters_before) -> ::capstan_guest::Result<#answer> {
                match ::capstan_guest::glue::controller().as_str() {
                    #(#known => <#operators as ::capstan_guest::#of>::#method(#before),)*
                    other => {
                        let _ = other;
                        #otherwise
                    }
                }
            }
        };
    }
    quote! {
        fn #method(
            #parameters_before
            primary: &Self::Primary,
            #parameters_after
        ) -> ::capstan_guest::Result<#answer> {
            match ::capstan_guest::glue::controller().as_str() {
                #(#known => {
                    let primary = ::capstan_guest::glue::primary::<<#operators as ::capstan_guest::#of>::Primary>(
                        primary.as_str(),
                    )?;
                    <#operators as ::capstan_guest::#of>::#method(#before &primary, #after)
                })*
                other => {
                    let _ = other;
                    #otherwise
                }
            }
        }
    }
}

/// The function of a trait: what comes before and after the primary, and what it answers.
struct Shape {
    method: Ident,
    before: Vec<Parameter>,
    after: Vec<Parameter>,
    answer: TokenStream,
}

/// A parameter's name and type.
type Parameter = (Ident, TokenStream);

impl Shape {
    /// Returns the functions of one of the [`CAPABILITIES`].
    fn all(name: &str) -> Vec<Self> {
        match name {
            "External" => ["create_external", "update_external", "remove_external"].map(Self::of).into(),
            _ => vec![Self::of(name)],
        }
    }

    /// Returns the function of one of the [`CAPABILITIES`], or one of several by its own name.
    fn of(name: &str) -> Self {
        let text = |name: &str| (format_ident!("{name}"), quote!(&str));
        let json = |name: &str| (format_ident!("{name}"), quote!(&::capstan_guest::Json));
        let change = || (format_ident!("change"), quote!(&::capstan_guest::Change));
        let request = || (format_ident!("request"), quote!(&::capstan_guest::Request));
        let failure = || (format_ident!("failure"), quote!(&::capstan_guest::Failure));
        let failed = || (format_ident!("failed"), quote!(&::capstan_guest::FailedRun));
        let (method, before, after, answer) = match name {
            "Reconciler" => ("reconcile", vec![], vec![], "Update"),
            "Cleaner" => ("cleanup", vec![], vec![], "Deletion"),
            "ErrorHandler" => ("handle_error", vec![], vec![failure()], "Option<Handled>"),
            "RetryPolicy" => ("decide_retry", vec![], vec![failed()], "NextRetry"),
            "Validator" => ("validate", vec![], vec![], "Vec<Problem>"),
            "Initializer" => ("initialize", vec![], vec![], "()"),
            "Dependents" => ("desired", vec![text("name")], vec![], "Json"),
            "Bulks" => ("desired_set", vec![text("name")], vec![], "Vec<Json>"),
            "create_external" => ("create_external", vec![text("name"), json("desired")], vec![], "Created"),
            "update_external" => {
                ("update_external", vec![text("name"), json("actual"), json("desired")], vec![], "Json")
            }
            "remove_external" => ("remove_external", vec![text("name"), json("actual")], vec![], "()"),
            "Matchers" => ("matches", vec![text("name"), json("actual"), json("desired")], vec![], "Match"),
            "Pollers" => ("poll", vec![text("name")], vec![], "PrimaryThings"),
            "ResourcePollers" => ("poll_one", vec![text("name")], vec![], "Things"),
            "Receivers" => ("receive", vec![text("name"), request()], vec![], "Received"),
            "Filters" => ("accepts", vec![text("name"), change()], vec![], "bool"),
            "Mappers" => ("to_primaries", vec![text("name"), json("secondary")], vec![], "Keys"),
            "SecondaryMappers" => ("to_secondaries", vec![text("name")], vec![], "Keys"),
            _ => ("is_met", vec![text("name"), text("dependent")], vec![], "Met"),
        };
        let answer = match answer {
            "()" => quote!(()),
            "bool" => quote!(bool),
            "Option<Handled>" => quote!(::core::option::Option<::capstan_guest::Handled>),
            "Vec<Json>" => quote!(::std::vec::Vec<::capstan_guest::Json>),
            "Vec<Problem>" => quote!(::std::vec::Vec<::capstan_guest::Problem>),
            _ => {
                let answer = format_ident!("{answer}");
                quote!(::capstan_guest::#answer)
            }
        };
        Self { method: format_ident!("{method}"), before, after, answer }
    }
}

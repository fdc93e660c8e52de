//! Decides how a block of functions becomes a trait whose one function looks them up by name.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, LitStr, Meta, Result, Type};

/// Which trait a block becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `Dependents`: functions of the primary.
    Dependents,
    /// `Bulks`: functions of the primary.
    Bulks,
    /// `Matchers`: functions of the actual object, the desired one, and the primary.
    Matchers,
    /// `Conditions`: functions of the primary and the dependent's name.
    Conditions,
    /// `Pollers`: functions of nothing.
    Pollers,
    /// `ResourcePollers`: functions of the primary.
    ResourcePollers,
    /// `Receivers`: functions of the request.
    Receivers,
    /// `Filters`: functions of the change.
    Filters,
    /// `Mappers`: functions of the secondary.
    Mappers,
    /// `SecondaryMappers`: functions of the primary.
    SecondaryMappers,
}

impl Capability {
    /// Returns the attribute that gives a function another name.
    fn attribute(self) -> &'static str {
        match self {
            Self::Dependents => "desired",
            Self::Bulks => "desired_set",
            Self::Matchers => "matcher",
            Self::Conditions => "condition",
            Self::Pollers => "poller",
            Self::ResourcePollers => "resource_poller",
            Self::Receivers => "receiver",
            Self::Filters => "filter",
            Self::Mappers => "mapper",
            Self::SecondaryMappers => "secondary_mapper",
        }
    }

    /// Returns what a function of the block is, as the error for an unknown name says it.
    fn noun(self) -> &'static str {
        match self {
            Self::Dependents => "desired state for",
            Self::Bulks => "desired set for",
            Self::Matchers => "matcher",
            Self::Conditions => "condition",
            Self::Pollers => "poller of",
            Self::ResourcePollers => "resource poller of",
            Self::Receivers => "receiver of",
            Self::Filters => "filter",
            Self::Mappers => "mapper",
            Self::SecondaryMappers => "secondary mapper",
        }
    }

    /// Returns the least and the greatest number of parameters, and where the primary is among them.
    fn parameters(self) -> (usize, usize, usize) {
        match self {
            Self::Dependents | Self::Bulks | Self::ResourcePollers | Self::SecondaryMappers => (0, 1, 0),
            Self::Receivers | Self::Filters | Self::Mappers => (1, 1, 0),
            Self::Matchers => (2, 3, 2),
            Self::Conditions => (0, 2, 0),
            Self::Pollers => (0, 0, 0),
        }
    }

    /// Returns the parameters as an author would write them.
    fn example(self) -> &'static str {
        match self {
            Self::Dependents | Self::Bulks | Self::ResourcePollers | Self::SecondaryMappers => "(page: &WebPage)",
            Self::Receivers => "(request: &Request)",
            Self::Filters => "(change: &Change)",
            Self::Mappers => "(secondary: &ConfigMap)",
            Self::Pollers => "nothing: it answers for all primaries at once",
            Self::Matchers => "(actual: &ConfigMap, desired: &ConfigMap, page: &WebPage), the last if needed",
            Self::Conditions => "(page: &WebPage, dependent: &str), the last if needed",
        }
    }
}

/// One function of a block.
struct Named {
    ident: Ident,
    name: String,
    parameters: usize,
    primary: Option<Type>,
}

/// Returns the block as it was, and the trait over it.
pub(crate) fn expand(capability: Capability, mut block: ItemImpl) -> Result<TokenStream> {
    if let Some((_, path, _)) = &block.trait_ {
        let message = "goes above `impl YourType { … }`, without a trait: the trait is written by the attribute";
        return Err(Error::new(path.span(), message));
    }
    let mut functions = Vec::new();
    for item in &mut block.items {
        if let ImplItem::Fn(function) = item {
            functions.push(Named::take(capability, function)?);
        } else {
            return Err(Error::new(item.span(), "only functions, one for each name; the rest goes into another block"));
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for Named { name, ident, .. } in &functions {
        if names.contains(&name.as_str()) {
            return Err(Error::new(ident.span(), format!("there is a function for `{name}` already")));
        }
        names.push(name);
    }
    let implementation = implementation(capability, &block.self_ty, &functions, &names);
    Ok(quote! {
        #block
        #implementation
    })
}

fn implementation(capability: Capability, of: &Type, functions: &[Named], names: &[&str]) -> TokenStream {
    let primary = functions.iter().find_map(|function| function.primary.clone());
    let primary = primary.map_or_else(|| quote!(::capstan_guest::glue::Anything), |primary| quote!(#primary));
    let noun = capability.noun();
    let calls = functions.iter().map(|function| function.call(capability));
    let otherwise =
        quote!(_ => ::core::result::Result::Err(::capstan_guest::glue::unknown(#noun, name, &[#(#names),*])));
    let body = quote! {
        match name {
            #(#names => #calls,)*
            #otherwise,
        }
    };
    let names = quote! {
        const NAMES: ::capstan_guest::Names = ::core::option::Option::Some(&[#(#names),*]);
    };
    the_trait(capability, of, (&names, &primary), &body)
}

/// Returns the trait over a block: its function has this body.
fn the_trait(
    capability: Capability,
    of: &Type,
    (names, primary): (&TokenStream, &TokenStream),
    body: &TokenStream,
) -> TokenStream {
    match capability {
        Capability::Dependents => quote! {
            impl ::capstan_guest::Dependents for #of {
                #names
                type Primary = #primary;
                fn desired(name: &str, primary: &Self::Primary) -> ::capstan_guest::Result<::capstan_guest::Json> {
                    let _ = primary;
                    #body
                }
            }
        },
        Capability::Bulks => bulks(of, (names, primary), body),
        Capability::Matchers => matchers(of, (names, primary), body),
        Capability::Conditions => quote! {
            impl ::capstan_guest::Conditions for #of {
                #names
                type Primary = #primary;
                fn is_met(
                    name: &str,
                    dependent: &str,
                    primary: &Self::Primary,
                ) -> ::capstan_guest::Result<::capstan_guest::Met> {
                    let _ = (dependent, primary);
                    #body
                }
            }
        },
        Capability::Pollers => quote! {
            impl ::capstan_guest::Pollers for #of {
                #names
                fn poll(name: &str) -> ::capstan_guest::Result<::capstan_guest::PrimaryThings> {
                    #body
                }
            }
        },
        Capability::ResourcePollers => quote! {
            impl ::capstan_guest::ResourcePollers for #of {
                #names
                type Primary = #primary;
                fn poll_one(name: &str, primary: &Self::Primary) -> ::capstan_guest::Result<::capstan_guest::Things> {
                    let _ = primary;
                    #body
                }
            }
        },
        Capability::Receivers => receivers(of, names, body),
        Capability::Filters => filters(of, names, body),
        Capability::Mappers => mappers(of, names, body),
        Capability::SecondaryMappers => secondary_mappers(of, (names, primary), body),
    }
}

fn bulks(of: &Type, (names, primary): (&TokenStream, &TokenStream), body: &TokenStream) -> TokenStream {
    quote! {
        impl ::capstan_guest::Bulks for #of {
            #names
            type Primary = #primary;
            fn desired_set(
                name: &str,
                primary: &Self::Primary,
            ) -> ::capstan_guest::Result<::std::vec::Vec<::capstan_guest::Json>> {
                let _ = primary;
                #body
            }
        }
    }
}

fn matchers(of: &Type, (names, primary): (&TokenStream, &TokenStream), body: &TokenStream) -> TokenStream {
    quote! {
        impl ::capstan_guest::Matchers for #of {
            #names
            type Primary = #primary;
            fn matches(
                name: &str,
                actual: &::capstan_guest::Json,
                desired: &::capstan_guest::Json,
                primary: &Self::Primary,
            ) -> ::capstan_guest::Result<::capstan_guest::Match> {
                let _ = (actual, desired, primary);
                #body
            }
        }
    }
}

fn receivers(of: &Type, names: &TokenStream, body: &TokenStream) -> TokenStream {
    quote! {
        impl ::capstan_guest::Receivers for #of {
            #names
            fn receive(
                name: &str,
                request: &::capstan_guest::Request,
            ) -> ::capstan_guest::Result<::capstan_guest::Received> {
                let _ = request;
                #body
            }
        }
    }
}

fn filters(of: &Type, names: &TokenStream, body: &TokenStream) -> TokenStream {
    quote! {
        impl ::capstan_guest::Filters for #of {
            #names
            fn accepts(name: &str, change: &::capstan_guest::Change) -> ::capstan_guest::Result<bool> {
                let _ = change;
                #body
            }
        }
    }
}

fn mappers(of: &Type, names: &TokenStream, body: &TokenStream) -> TokenStream {
    quote! {
        impl ::capstan_guest::Mappers for #of {
            #names
            fn to_primaries(
                name: &str,
                secondary: &::capstan_guest::Json,
            ) -> ::capstan_guest::Result<::capstan_guest::Keys> {
                let _ = secondary;
                #body
            }
        }
    }
}

fn secondary_mappers(of: &Type, (names, primary): (&TokenStream, &TokenStream), body: &TokenStream) -> TokenStream {
    quote! {
        impl ::capstan_guest::SecondaryMappers for #of {
            #names
            type Primary = #primary;
            fn to_secondaries(name: &str, primary: &Self::Primary) -> ::capstan_guest::Result<::capstan_guest::Keys> {
                let _ = primary;
                #body
            }
        }
    }
}

impl Named {
    /// Reads a function, and takes our attribute away from it.
    fn take(capability: Capability, function: &mut ImplItemFn) -> Result<Self> {
        let (least, greatest, place) = capability.parameters();
        let inputs = &function.sig.inputs;
        if let Some(receiver) = function.sig.receiver() {
            return Err(Error::new(receiver.span(), "takes no `self`: instances do not last, see `memo`"));
        }
        if !(least..=greatest).contains(&inputs.len()) {
            let message = format!("takes {}", capability.example());
            return Err(Error::new(inputs.span(), message));
        }
        let primary = inputs.iter().nth(place).map(|input| by_reference(input, capability)).transpose()?;
        let parameters = inputs.len();
        let ident = function.sig.ident.clone();
        let (ours, others): (Vec<Attribute>, Vec<Attribute>) =
            function.attrs.drain(..).partition(|attribute| attribute.path().is_ident(capability.attribute()));
        function.attrs = others;
        let name = match ours.as_slice() {
            [] => None,
            [attribute] => given(attribute)?,
            [_, second, ..] => return Err(Error::new(second.span(), "one name is enough")),
        };
        let name = name.unwrap_or_else(|| ident.unraw().to_string().replace('_', "-"));
        Ok(Self { ident, name, parameters, primary })
    }

    /// Returns the call of the function, and what makes its answer that of the trait.
    fn call(&self, capability: Capability) -> TokenStream {
        let ident = &self.ident;
        // The place of the function, for errors; the macro's own, for lints.
        let here = Span::call_site().located_at(ident.span());
        let arguments = match (capability, self.parameters) {
            (Capability::Pollers, _)
            | (
                Capability::Dependents
                | Capability::Bulks
                | Capability::Conditions
                | Capability::ResourcePollers
                | Capability::SecondaryMappers,
                0,
            ) => TokenStream::new(),
            (
                Capability::Dependents | Capability::Bulks | Capability::ResourcePollers | Capability::SecondaryMappers,
                _,
            )
            | (Capability::Conditions, 1) => {
                quote_spanned!(here=> primary)
            }
            (Capability::Receivers, _) => quote_spanned!(here=> request),
            (Capability::Filters, _) => quote_spanned!(here=> change),
            (Capability::Mappers, _) => quote_spanned!(here=> &secondary.parse()?),
            (Capability::Conditions, _) => quote_spanned!(here=> primary, dependent),
            (Capability::Matchers, 2) => quote_spanned!(here=> &actual.parse()?, &desired.parse()?),
            (Capability::Matchers, _) => {
                quote_spanned!(here=> &actual.parse()?, &desired.parse()?, primary)
            }
        };
        let answer = quote_spanned! {here=>
            {
                use ::capstan_guest::glue::{Fallible as _, Plain as _};
                let answer = Self::#ident(#arguments);
                (&answer).kind().settle(answer)?
            }
        };
        match capability {
            Capability::Dependents => quote_spanned!(here=> ::capstan_guest::Json::of(&#answer)),
            Capability::Bulks => quote_spanned!(here=> ::capstan_guest::glue::set(#answer)),
            Capability::Matchers | Capability::Pollers | Capability::Receivers | Capability::Filters => {
                quote_spanned!(here=> ::core::result::Result::Ok(#answer))
            }
            Capability::Conditions
            | Capability::ResourcePollers
            | Capability::Mappers
            | Capability::SecondaryMappers => {
                quote_spanned!(here=> ::core::result::Result::Ok(::core::convert::Into::into(#answer)))
            }
        }
    }
}

/// Returns the type behind the reference.
fn by_reference(input: &FnArg, capability: Capability) -> Result<Type> {
    let ty = match input {
        FnArg::Typed(typed) => typed.ty.as_ref(),
        FnArg::Receiver(receiver) => receiver.ty.as_ref(),
    };
    if let Type::Reference(reference) = ty {
        return Ok(reference.elem.as_ref().clone());
    }
    Err(Error::new(ty.span(), format!("takes references: {}", capability.example())))
}

/// Returns the name in `#[desired("name")]`; none in a bare `#[desired]`.
fn given(attribute: &Attribute) -> Result<Option<String>> {
    if matches!(attribute.meta, Meta::Path(_)) {
        return Ok(None);
    }
    Ok(Some(attribute.parse_args::<LitStr>()?.value()))
}

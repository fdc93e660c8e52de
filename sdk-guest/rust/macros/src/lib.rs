//! The attributes and the export line of `capstan-guest`, which re-exports and explains them.

mod export;
mod named;
mod resource;

use proc_macro::TokenStream;
use syn::{Error, ItemImpl, parse_macro_input};

/// Makes a block of functions the trait `Dependents`.
#[proc_macro_attribute]
pub fn dependents(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Dependents, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Bulks`.
#[proc_macro_attribute]
pub fn bulks(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Bulks, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Matchers`.
#[proc_macro_attribute]
pub fn matchers(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Matchers, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Conditions`.
#[proc_macro_attribute]
pub fn conditions(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Conditions, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Pollers`.
#[proc_macro_attribute]
pub fn pollers(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Pollers, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `ResourcePollers`.
#[proc_macro_attribute]
pub fn resource_pollers(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::ResourcePollers, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Receivers`.
#[proc_macro_attribute]
pub fn receivers(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Receivers, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Filters`.
#[proc_macro_attribute]
pub fn filters(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Filters, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `Mappers`.
#[proc_macro_attribute]
pub fn mappers(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::Mappers, &arguments, parse_macro_input!(block))
}

/// Makes a block of functions the trait `SecondaryMappers`.
#[proc_macro_attribute]
pub fn secondary_mappers(arguments: TokenStream, block: TokenStream) -> TokenStream {
    attribute(named::Capability::SecondaryMappers, &arguments, parse_macro_input!(block))
}

/// Makes a type a custom resource.
#[proc_macro_derive(Resource, attributes(resource))]
pub fn resource(input: TokenStream) -> TokenStream {
    resource::expand(&parse_macro_input!(input)).unwrap_or_else(Error::into_compile_error).into()
}

/// Exports what types implement.
#[proc_macro]
pub fn export(line: TokenStream) -> TokenStream {
    let entries = parse_macro_input!(line as export::Entries);
    export::expand(&entries).into()
}

fn attribute(capability: named::Capability, arguments: &TokenStream, block: ItemImpl) -> TokenStream {
    if !arguments.is_empty() {
        let message = "this attribute takes no arguments; a name goes above the function";
        return Error::new(proc_macro2::Span::call_site(), message).to_compile_error().into();
    }
    named::expand(capability, block).unwrap_or_else(Error::into_compile_error).into()
}

"""The console: pages for people, rendered by the server, at ``/ui/`` (CON-1). They use services, as the routes do.

A page is added so:

* Its module stands beside ``resources``: a class with ``routes = Routes()`` and the services that it uses, whose coroutines
  are declared by ``pages.declare_page`` (GET) and ``pages.declare_form_post`` (the POST of a form), and return
  ``self.renderer.render_page(…)``.
* Its events in the audit are those of the routes that read the same, in ``web.routes``.
* Its template stands in ``templates/`` and extends ``layout.html``. It gets what the coroutine passes on, and the session;
  ``parts.html`` has the macros for names, moments and lists. Everything is escaped. A form begins with
  ``{{ parts.token(form_token) }}``.
* It is made in ``svc.server.console``, and in ``tests.web.console.world``. To be found from every page, it has an entry in
  ``rendering.NAVIGATION``.
* Its tests are in ``tests/web/console``. ``tests.integration.test_console`` opens it in a browser, with its picture, and
  ``bench.console`` measures it.

The parts that all pages share, from the session to the headers, are in ``middleware``; no page can leave them out.
"""

package io.unitycatalog.spark;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Replaces Unity Catalog's connector: Delta 4.4 uses the Delta API only if the catalog's class has this name. Delta does
 * all work on tables by itself, except drops. So this catalog answers that it has no table, and drops tables.
 */
public final class UCSingleCatalog extends DeltaCatalog {
  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    setDelegateCatalog(new Backend(name, options));
    super.initialize(name, options);
  }

  private static final class Backend implements TableCatalog, SupportsNamespaces {
    private final String name;
    private final String uri;
    private final String token;

    Backend(String name, CaseInsensitiveStringMap options) {
      this.name = name;
      this.uri = options.get("uri");
      this.token = options.get("token");
    }

    @Override
    public void initialize(String name, CaseInsensitiveStringMap options) {}

    @Override
    public String name() {
      return name;
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
      throw new NoSuchTableException(table);
    }

    @Override
    public boolean dropTable(Identifier table) {
      String full = name + "." + String.join(".", table.namespace()) + "." + table.name();
      HttpRequest request =
          HttpRequest.newBuilder(URI.create(uri + "/api/2.1/unity-catalog/tables/" + full))
              .header("Authorization", "Bearer " + token)
              .DELETE()
              .build();
      try {
        HttpResponse<String> answer =
            HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200 && answer.statusCode() != 404) {
          throw new IllegalStateException(answer.statusCode() + ": " + answer.body());
        }
        return answer.statusCode() == 200;
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException(error);
      }
    }

    @Override
    public boolean namespaceExists(String[] namespace) {
      return true;
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) {
      return Map.of();
    }

    @Override
    public Identifier[] listTables(String[] namespace) {
      return new Identifier[0];
    }

    @Override
    public String[][] listNamespaces() {
      return new String[0][];
    }

    @Override
    public String[][] listNamespaces(String[] namespace) {
      return new String[0][];
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
      throw new UnsupportedOperationException("alterTable");
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
      throw new UnsupportedOperationException("renameTable");
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
      throw new UnsupportedOperationException("createNamespace");
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
      throw new UnsupportedOperationException("alterNamespace");
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
      throw new UnsupportedOperationException("dropNamespace");
    }
  }
}
